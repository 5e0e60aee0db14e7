// What Replay keeps of one process. Private to replay*.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attribute/estimated_walk.h"
#include "attribute/picture/page_ages.h"
#include "decode/block_merge.h"
#include "decode/page_walk_reader.h"
#include "decode/record_list.h"
#include "replay/file_pages.h"
#include "replay/replay.h"
#include "replay/small_blocks.h"

namespace whyrss {

// A program that lives on so long after its runtime was taken down does something of its own (an embedded interpreter).
inline constexpr std::uint64_t kTeardownNs = 2'000'000'000;

// A record of a teardown that may not be followed by one.
inline bool is_end_of_script(const EventRecord& record) {
  trace::ProcessRecord reported{};
  return record.kind == trace::RecordKind::teardown && read_record(record, reported) &&
         (reported.status & ~trace::Teardown::unmoved) == trace::Teardown::script;
}

inline bool is_undone_teardown(const EventRecord& record) {
  trace::ProcessRecord reported{};
  return record.kind == trace::RecordKind::teardown && read_record(record, reported) &&
         reported.status == trace::Teardown::undone;
}

struct Replay::Process {
  explicit Process(StackTable& table) : threads(table) {}

  ProcessInput* input = nullptr;
  ProcessAccount* account = nullptr;
  RecordList records;
  std::vector<Walk> walks;
  std::map<std::size_t, std::size_t> pictured;  // numbers of walks, and entries that their pictures have at most
  PageAges ages;
  std::vector<const RawFrame*> liveness_frames;  // in the order of the walks, as those of the next line
  std::vector<Bytes> views_frames, huge_frames, lazy_frames;
  PayloadBuffer payload;
  std::size_t next_record = 0, next_walk = 0, next_liveness = 0, next_views = 0, next_huge = 0, next_lazy = 0;
  LivenessReader liveness_reader;
  std::optional<WalkLiveness> liveness;  // the last one read

  std::vector<std::unique_ptr<ImageTables>> images;  // one per attach record, all definitions loaded
  std::size_t next_image = 0;
  ImageTables* image = nullptr;  // nullptr: not attached yet, or an exec went to a program without us
  AddressSpace space;
  SmallBlocks small;
  FilePages file_pages;
  std::optional<BlockMerge> merge;  // exact mode
  ThreadStarts threads;
  std::map<StackId, StackCache> stacks;         // by who started their threads
  std::unique_ptr<AddressSpace> fork_snapshot;  // the parent's picture when it forked this child
  std::unique_ptr<LiveSet> fork_small;          // and its small blocks
  std::uint64_t attach_ns = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t attached_ns = 0;  // the image of now
  Process* forked_from = nullptr;
  std::uint64_t forked_ns = 0;  // as its parent reported; 0: it did not
  std::uint64_t page_bytes = 4096;
  bool attached = false, needs_inheritance_from_walk = false, exec_pending = false;
  bool gave_size = false;  // since the last mark of a phase's edge
  Untraced exec;           // the last one

  // What it shares with those that it was forked from, and that were forked from it.
  std::shared_ptr<Family> family;  // nullptr: none
  PageSharing::Member member = 0;
  std::vector<trace::Poll> polls;  // by time
  KernelEnd end;
  std::uint64_t killed_ns = 0;  // of the last one, where the kernel's log or page faults tell it instead of a poll
  bool blocks_moved = false;    // small ones, since the last walk of a process that was ended
  // Where they tell its size at its end: since the last poll, and what its faults brought in since; 0: they do not.
  std::uint64_t grows_from_ns = 0, grown_pages = 0;
  // Where it also gave memory back since then: what events say was resident then, and the most that it can have.
  std::optional<std::uint64_t> resident_then;
  std::uint64_t most_pages = 0;
  std::uint64_t peak_ns = 0;                // of the poll whose size is the kernel's mark; 0: there is none
  std::vector<trace::LivePoll> live_polls;  // by time
  std::vector<trace::Poll> moments;         // of them those at which an account is estimated
  std::size_t next_moment = 0;
  std::optional<Evidence> walked;  // of the last walk, as long as such a moment comes before the next one
  std::size_t walked_account = 0;  // its number
  std::uint64_t walked_ns = 0;     // and its time
  SampledBytes walked_blocks;      // what sampled blocks stood for
  struct Mapped {
    Backing backing = Backing::anonymous;
    bool shared = false;
    friend bool operator==(const Mapped&, const Mapped&) = default;
  };
  IntervalMap<Mapped> mapped_since;       // that walk
  std::uint64_t last_faults = 0;          // that it had taken when the last walk began
  std::uint64_t last_counted_faults = 0;  // of them those that samples and watched calls stood for
  std::uint64_t reported_copies = 0;      // pages, of those that no walk saw
  std::uint64_t last_walk_ns = 0;         // when it began
  OwnPages last_own;
  bool has_last_walk = false;
  bool forked_in_walk = false;       // the one at hand: the family's model takes no walk from it
  std::optional<WalkedPages> ahead;  // its next walk, read with a relative's of the same moment
  bool early_is_damaged = false;
  std::optional<WalkedPages> early;          // its next walk, read for what it shows of mappings made while it went on
  std::vector<TransitionRange> transitions;  // for that walk
  struct Tracked {
    std::uint64_t time_ns = 0;
    std::vector<trace::PageRun> runs;
  };
  std::vector<Tracked> tracked;  // by time
  std::size_t next_tracked = 0;
  // When its last image began to free what it had kept, and whether nothing had moved since the walk before. It ended
  // so: else it may live on.
  struct TornDown {
    std::uint64_t time_ns = 0;
    bool unmoved = false, ended = false;
  };
  std::optional<TornDown> torn_down;
  std::vector<std::pair<std::string, std::uint64_t>> open_phases;
  std::vector<trace::Poll> sizes;  // that it gave at edges of phases; by time
  std::size_t damaged_walks = 0;
  // At the walk played last, and the most at two walks in a row: what one thread frees while the counts of another are
  // read is below 0 at one.
  std::uint64_t underflowed_pages = 0, lasting_underflowed_pages = 0;

  [[nodiscard]] std::uint64_t next_ns() const {
    std::uint64_t next = std::numeric_limits<std::uint64_t>::max();
    if (next_record < records.size()) next = records[next_record].time_ns;
    if (next_walk < walks.size()) next = std::min(next, walks[next_walk].time_ns);
    if (next_moment < moments.size()) next = std::min(next, moments[next_moment].time_ns);
    return next;
  }
  void forget_file_pages(const EventRecord& record, std::uint64_t start, std::uint64_t size_bytes) {
    file_pages.forget(start, size_bytes, next_walk < walks.size() && record.time_ns >= walks[next_walk].begin_ns);
  }
  // Whether what it inherits of small blocks is ever read.
  [[nodiscard]] bool shows_inherited_blocks() const;
  [[nodiscard]] bool done() const {
    return next_record == records.size() && next_walk == walks.size() && next_moment == moments.size();
  }
};

struct Replay::Family {
  PageSharing sharing;
  std::vector<Process*> members;  // nullptr: a parent that was not recorded
  bool finished = false;
};

}  // namespace whyrss
