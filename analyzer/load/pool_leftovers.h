// What a pool still holds after its collector was killed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "decode/process_input.h"
#include "recording/block_columns.h"
#include "shim/trace/pool.h"
#include "support/file.h"

namespace whyrss {

// A private copy of a pool file, aligned as its layout wants it.
class PoolCopy {
 public:
  // Fails when it is no pool of this session.
  static Result<PoolCopy> read(const Fd& fd, const std::string& session);

  // The bytes that the collector has not taken, for the processes of the recording; processes of which
  // nothing was stored are added. The inputs point into this copy. Returns the number of bytes.
  std::uint64_t add_to(std::vector<std::unique_ptr<ProcessInput>>& inputs) const;

 private:
  bool drop_what_changed(const Fd& fd);
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  void add_counts(std::vector<std::unique_ptr<ProcessInput>>& inputs) const;
  static void add_segment(const trace::Segment& segment, EventStream& stream, BlockColumns& columns);

  std::unique_ptr<std::byte, Free> bytes_;
  trace::PoolView pool_;
};

}  // namespace whyrss
