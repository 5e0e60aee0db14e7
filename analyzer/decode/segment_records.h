// The records in the payload of a `segment` frame, one after the other.
#pragma once

#include <cstdint>
#include <optional>

#include "decode/bytes.h"
#include "shim/trace/pool.h"
#include "shim/trace/recording_format.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

// Calls visit(offset in the lease, header, bytes) for each record of a piece of a lease that begins at `offset`; false
// at the first one that is damaged: without its size the place of the next one is not known. The place of the damaged
// one is then in `offset`.
template <typename Visit>
bool visit_records(Bytes bytes, std::uint32_t& offset, Visit visit) {
  while (!bytes.empty()) {
    trace::RecordHeader header{};
    if (!ByteReader(bytes).take(header) || header.size_bytes < sizeof header || header.size_bytes % 8 != 0 ||
        header.size_bytes > bytes.size())
      return false;
    visit(offset, header, bytes.first(header.size_bytes));
    bytes = bytes.subspan(header.size_bytes);
    offset += header.size_bytes;
  }
  return true;
}

// Calls visit(header, bytes) for each segment of a payload. False when it is damaged; what came before counts.
template <typename Visit>
bool visit_segments(Bytes payload, Visit visit) {
  ByteReader reader(payload);
  while (!reader.rest().empty()) {
    trace::SegmentHeader header{};
    if (!reader.take(header) || header.bytes > trace::kChunkBytes || header.offset > trace::kChunkBytes) return false;
    const Bytes bytes = reader.take_bytes(header.bytes);
    if (reader.bad()) return false;
    visit(header, bytes);
  }
  return true;
}

// The id of a stack record that is whole; nothing of other records.
inline std::optional<std::uint32_t> stack_id_of(const trace::RecordHeader& header, Bytes record) {
  trace::StackRecord stack{};
  if (header.kind != trace::RecordKind::stack || !ByteReader(record).take(stack)) return std::nullopt;
  const std::size_t python_count = std::size_t{stack.python_count} + stack.waiting_count;
  const std::size_t needed =
      sizeof stack + stack.native_count * sizeof(std::uint64_t) + python_count * sizeof(trace::PythonFrame);
  return needed <= record.size() ? std::optional(stack.stack_id) : std::nullopt;
}

}  // namespace whyrss
