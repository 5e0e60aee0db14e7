// Writes one record into the thread's chunk. Shared by observe.cc and the attach code; no other code
// writes records of the shim's own kinds.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "shim/events/thread_state.h"
#include "shim/trace/clock.h"
#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss::shim {

using trace::now_ns;

inline trace::RecordHeader header_of(trace::RecordKind kind, std::size_t size_bytes) noexcept {
  return {.size_bytes = trace::padded(size_bytes), .kind = kind, .reserved = 0, .time_ns = now_ns()};
}

// A record without a variable part; its header is filled here.
template <class Record>
void emit(ThreadState& thread, trace::RecordKind kind, Record record) noexcept {
  static_assert(sizeof(Record) % 8 == 0);
  std::byte* bytes = trace::reserve(thread.writer, thread.lease, sizeof(Record));
  if (bytes == nullptr) return;
  record.header = header_of(kind, sizeof(Record));
  std::memcpy(bytes, &record, sizeof(Record));
  trace::publish(thread.lease, sizeof(Record));
}

inline constexpr std::size_t kMaxTextBytes = 4096;

inline void emit_text(ThreadState& thread, trace::RecordKind kind, std::uint32_t argument,
                      std::string_view text) noexcept {
  const std::size_t text_bytes = std::min(text.size(), kMaxTextBytes);
  const std::size_t size_bytes = trace::padded(sizeof(trace::TextRecord) + text_bytes);
  std::byte* bytes = trace::reserve(thread.writer, thread.lease, size_bytes);
  if (bytes == nullptr) return;
  const trace::TextRecord record{.header = header_of(kind, size_bytes),
                                 .argument = argument,
                                 .text_bytes = static_cast<std::uint32_t>(text_bytes)};
  std::memset(bytes + size_bytes - 8, 0, 8);  // the padding behind the text
  std::memcpy(bytes, &record, sizeof(record));
  std::memcpy(bytes + sizeof(record), text.data(), text_bytes);
  trace::publish(thread.lease, size_bytes);
}

inline void emit_note(ThreadState& thread, std::string_view text) noexcept {
  emit_text(thread, trace::RecordKind::note, 0, text);
}

}  // namespace whyrss::shim
