// What of a recording could not be written, as its manifest keeps it and reports say it.
#pragma once

#include <cstdint>
#include <string>

namespace whyrss {

struct WriteFault {
  std::string file;  // the first one, relative to the recording
  std::string error;
  std::int64_t from_ns = 0;   // CLOCK_MONOTONIC of the first failure
  std::int64_t until_ns = 0;  // of the last one, when there was room again; 0: to the end
  std::int64_t other_files = 0;
  // What is missing: events of the shim, page walks, and all other frames.
  std::int64_t events = 0, walks = 0, frames = 0;
};

// "<file> could not be written from 1.2 s on: No space left on device (10 events and 2 snapshots are missing)"
std::string describe(const WriteFault& fault, std::int64_t started_ns);

}  // namespace whyrss
