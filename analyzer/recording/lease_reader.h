// Goes through the records of one lease: compact ones into columns, all others to the caller.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "recording/block_columns.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

// Records that only describe what others refer to, or say something for people: their place among the events of
// their thread does not matter.
bool is_description(trace::RecordKind kind);

class LeaseReader {
 public:
  struct Other {
    std::uint32_t offset;              // in the chunk
    trace::RecordHeader header;        // as it was when it was checked
    std::span<const std::byte> bytes;  // the whole record, where it lies
    bool damaged;                      // `bytes` is all the rest: where the next record begins is not known
  };

  // `bytes` begin at progress.offset of the lease and may be overwritten meanwhile; all outlive this.
  LeaseReader(std::span<const std::byte> bytes, BlockColumns::Source source, LeaseProgress& progress,
              BlockColumns& columns)
      : rest_(bytes), source_(source), progress_(&progress), columns_(&columns) {}

  // The next record that the columns do not hold; nothing at the end. Among them are compact records when their lease
  // has no clock, or when no shim writes such.
  std::optional<Other> next();

 private:
  std::span<const std::byte> rest_;
  BlockColumns::Source source_;
  LeaseProgress* progress_;
  BlockColumns* columns_;
};

}  // namespace whyrss
