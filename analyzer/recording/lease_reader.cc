#include "recording/lease_reader.h"

#include <cstring>

namespace whyrss {

bool is_description(trace::RecordKind kind) {
  using trace::RecordKind;
  switch (kind) {
    case RecordKind::padding:
    case RecordKind::module:
    case RecordKind::python:
    case RecordKind::code:
    case RecordKind::stack:
    case RecordKind::tables:
    case RecordKind::mark:
    case RecordKind::size:
    case RecordKind::note:
    case RecordKind::touch:
    case RecordKind::touch_state:
    case RecordKind::allocator_stats:
    case RecordKind::no_uffd_handoff:
    case RecordKind::ended_child:
    case RecordKind::shared_file:
      return true;
    default:
      return false;
  }
}

std::optional<LeaseReader::Other> LeaseReader::next() {
  rest_ = rest_.subspan(columns_->take(rest_, source_, *progress_));
  if (rest_.empty()) return std::nullopt;
  Other other{.offset = progress_->offset, .header = {}, .bytes = rest_, .damaged = true};
  if (rest_.size() >= sizeof other.header) {
    std::memcpy(&other.header, rest_.data(), sizeof other.header);
    const std::uint32_t size_bytes = other.header.size_bytes;
    other.damaged = size_bytes < sizeof other.header || size_bytes % 8 != 0 || size_bytes > rest_.size();
    if (!other.damaged) other.bytes = rest_.first(size_bytes);
  }
  rest_ = rest_.subspan(other.bytes.size());
  const auto taken = static_cast<std::uint32_t>(other.bytes.size());
  if (!other.damaged && is_description(other.header.kind))
    columns_->skip(taken, *progress_);
  else
    progress_->offset += taken;
  return other;
}

}  // namespace whyrss
