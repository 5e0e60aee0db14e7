// Walk frames, bytes to page runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attribute/evidence.h"
#include "attribute/inheritance.h"
#include "decode/bytes.h"
#include "shim/trace/recording_format.h"

namespace whyrss {

struct WalkedPages {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t minor_faults = 0;
  std::uint64_t page_bytes = 4096;
  bool skewed = false;
  bool smaps_only = false;  // runs lie anywhere in their VMA: good for sums, not for addresses
  bool partial = false;
  std::vector<Vma> vmas;
  std::vector<ResidentRun> runs;        // counted in RSS
  std::vector<AnonymousRun> anonymous;  // private anonymous pages, resident or swapped
  std::uint64_t resident_pages = 0;
};

// Nothing when the bytes are no walk: overlapping mappings, runs that do not cover their mapping, ...
std::optional<WalkedPages> read_walk(Bytes payload);

// The kernel adds " (deleted)" when a file has lost its last name. It is the same file, and the same line
// mapped it: with two names its growth would be reported as a loss here and a gain there.
std::string file_name(std::string path, Backing backing);

// Of a walk whose pages are not read yet.
std::optional<trace::WalkHeader> read_walk_header(Bytes payload);

}  // namespace whyrss
