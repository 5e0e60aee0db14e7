// Code objects and their ids: address -> id, without locks. An entry belongs to its address until
// CPython has freed the code object (free_code, from the wrapped tp_dealloc); code that the calling thread runs is not
// freed, so that a lookup of it never races with that. What another thread runs may be: what is read of it is pending
// until it is known that it was there all the time.
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>

#include "shim/events/emit.h"
#include "shim/events/own_memory_events.h"
#include "shim/stacks/python_access.h"
#include "shim/stacks/python_frames.h"
#include "shim/stacks/python_interpreter.h"
#include "shim/sys/copied_memory.h"
#include "shim/sys/own_memory.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

// One page of slots serves one 64 KiB region of addresses first: a small program touches few pages.
constexpr std::uint32_t kSlotCount = 1U << 16;
constexpr std::uint32_t kSlotsPerPage = 256;
constexpr std::uint32_t kMaxProbes = 1024;
constexpr std::uintptr_t kFreed = 1;  // a slot whose code object is gone

constexpr std::size_t kMaxTextBytes = 1024;
constexpr std::uint8_t kCut = 1;  // CodeRecord.flags: a text or the line table was cut off

struct Slot {
  std::atomic<std::uintptr_t> address;  // 0: never used
  std::atomic<std::uint64_t> known;     // Known of this code object as a number, 0 or pending: being described
};
static_assert(sizeof(Slot) == 16);

// What frames of a code object need to know of it.
struct Known {
  std::uint32_t id = 0;
  std::int32_t first_traceable_bytes = 0;  // frames before it have not started; 0 until 3.10

  static Known from(std::uint64_t number) noexcept { return __builtin_bit_cast(Known, number); }
  [[nodiscard]] std::uint64_t number() const noexcept { return __builtin_bit_cast(std::uint64_t, *this); }
};

// Slot.known while another thread than those that run the code describes it: with the id that it is to have.
constexpr std::uint64_t kPending = std::uint64_t{1} << 63;
bool is_settled(std::uint64_t number) noexcept { return number != 0 && (number & kPending) == 0; }

constexpr std::int32_t kUnitBytes = 2;

constexpr std::size_t kTableBytes = kSlotCount * sizeof(Slot);

constinit std::atomic<Slot*> g_slots{nullptr};
constinit std::atomic<std::uint32_t> g_last_id{0};
constinit std::atomic<bool> g_full_said{false};
constinit std::atomic<std::uint64_t> g_generation{1};
constinit std::atomic<bool> g_record_due{false};

std::uint32_t first_slot(std::uintptr_t address) noexcept {
  const auto page = static_cast<std::uint32_t>(((address >> 16) * 0x9e3779b97f4a7c15U) >> 56);
  const auto within = static_cast<std::uint32_t>(((address >> 4) * 0x9e3779b97f4a7c15U) >> 56);
  return page * kSlotsPerPage + within;
}
static_assert(kSlotCount / kSlotsPerPage == 256);

// The slot of this address, or one claimed for it; nullptr: the table is full around here.
Slot* find_or_claim(Slot* slots, std::uintptr_t address) noexcept {
  Slot* reusable = nullptr;
  const std::uint32_t first = first_slot(address);
  for (std::uint32_t probe = 0; probe < kMaxProbes; ++probe) {
    Slot& slot = slots[(first + probe) % kSlotCount];
    std::uintptr_t found = slot.address.load(std::memory_order_acquire);
    if (found == address) return &slot;
    if (found == kFreed && reusable == nullptr) reusable = &slot;
    if (found != 0) continue;
    if (reusable != nullptr) break;
    if (slot.address.compare_exchange_strong(found, address, std::memory_order_acq_rel) || found == address)
      return &slot;
  }
  std::uintptr_t found = kFreed;
  if (reusable != nullptr &&
      (reusable->address.compare_exchange_strong(found, address, std::memory_order_acq_rel) || found == address))
    return reusable;
  return nullptr;
}

// A str as CPython holds it; empty when it is not a compact one.
struct RawText {
  const std::byte* data = nullptr;
  std::size_t size_bytes = 0;
  std::uint8_t kind = 1;
};

template <class Reader>
RawText text_of(Reader& reader, const void* object) noexcept {
  if (!is_of_type(reader, object, g_python.unicode_type)) return {};
  const PythonLayout& layout = *g_python.layout;
  const auto state = reader.template load<std::uint32_t>(object, layout.text_state);
  const auto kind = static_cast<std::uint8_t>((state >> layout.text_kind_bit) & 7);  // bytes per character
  if (((state >> layout.text_compact_bit) & 1) == 0 || (kind != 1 && kind != 2 && kind != 4)) return {};
  const bool is_ascii = ((state >> layout.text_ascii_bit) & 1) != 0;
  const std::size_t offset = is_ascii ? layout.ascii_data : layout.compact_data;
  return {.data = static_cast<const std::byte*>(object) + offset,
          .size_bytes = reader.template load<std::size_t>(object, layout.text_length) * kind,
          .kind = kind};
}

template <class Reader>
RawText line_table_of(Reader& reader, const void* object) noexcept {
  if (!is_of_type(reader, object, g_python.bytes_type)) return {};
  return {.data = static_cast<const std::byte*>(object) + g_python.layout->bytes_data,
          .size_bytes = reader.template load<std::size_t>(object, g_python.layout->bytes_size)};
}

std::uint32_t cut(RawText& text, std::size_t limit_bytes, std::uint8_t& flags) noexcept {
  if (text.size_bytes > limit_bytes) {
    text.size_bytes = limit_bytes / text.kind * text.kind;
    flags |= kCut;
  }
  return static_cast<std::uint32_t>(text.size_bytes);
}

// The memory of an object that was freed keeps its type for a while. Its reference count is then 0 or, under
// pymalloc, a pointer to the next free block: addresses have bits set above the 32 of a count. The bits
// above 48 are flags since 3.14.
template <class Reader>
bool is_alive(Reader& reader, const void* object) noexcept {
  const PythonLayout& layout = *g_python.layout;
  if (layout.free_threaded)  // the lowest bits of the shared count are flags
    return reader.template load<std::uint32_t>(object, layout.object_local_count) != 0 ||
           reader.template load<std::uint64_t>(object, layout.object_shared_count) > 3;
  const auto count = reader.template load<std::uint64_t>(object, 0);
  return (count & UINT32_MAX) != 0 && ((count >> 32) & UINT16_MAX) == 0;
}

// Writes the record without publishing it; its size, 0 when there was no room or nothing to read. Once per
// code object, so that looking before each read costs nothing that matters; and in CPython 3.11 the frame
// that is just being left can hold a code object that is gone.
template <class Reader>
std::size_t write_record(const void* code, Reader& reader, Known& known, const trace::Writer& writer,
                         trace::Lease& lease) noexcept {
  const PythonLayout& layout = *g_python.layout;
  if (!is_of_type(reader, code, g_python.code_type) || !is_alive(reader, code)) return 0;
  const auto text_at = [&](std::size_t offset) {
    return text_of(reader, reader.template load<const void*>(code, offset));
  };
  RawText file = text_at(layout.code_file);
  RawText name = text_at(layout.code_name);
  RawText qualname = layout.code_qualname != 0 ? text_at(layout.code_qualname) : RawText{};
  RawText lines = line_table_of(reader, reader.template load<const void*>(code, layout.code_line_table));
  const auto first_line = reader.template load<std::uint32_t>(code, layout.code_first_line);
  if (layout.code_first_traceable != 0)
    known.first_traceable_bytes =
        std::max(reader.template load<std::int32_t>(code, layout.code_first_traceable), 0) * kUnitBytes;
  std::uint8_t flags = 0;
  trace::CodeRecord record{};
  record.code_id = known.id;
  record.first_line = first_line;
  record.file_bytes = cut(file, kMaxTextBytes, flags);
  record.name_bytes = cut(name, kMaxTextBytes, flags);
  record.qualname_bytes = cut(qualname, kMaxTextBytes, flags);
  record.line_table_bytes = cut(
      lines, trace::kChunkBytes - sizeof(record) - 8 - file.size_bytes - name.size_bytes - qualname.size_bytes, flags);
  record.file_kind = file.kind;
  record.name_kind = name.kind;
  record.qualname_kind = qualname.kind;
  record.flags = flags;
  for (const RawText& piece : {file, name, qualname, lines}) reader.has_range(piece.data, piece.size_bytes);
  if (reader.failed()) return 0;
  const std::size_t size_bytes =
      trace::padded(sizeof(record) + file.size_bytes + name.size_bytes + qualname.size_bytes + lines.size_bytes);
  std::byte* bytes = trace::reserve(writer, lease, size_bytes);
  if (bytes == nullptr) return 0;
  record.header = header_of(trace::RecordKind::code, size_bytes);
  __builtin_memset(bytes + size_bytes - 8, 0, 8);  // the padding at the end
  __builtin_memcpy(bytes, &record, sizeof(record));
  std::byte* into = bytes + sizeof(record);
  for (const RawText& piece : {file, name, qualname, lines}) {
    if (piece.size_bytes != 0 && !reader.copy(into, piece.data, piece.size_bytes)) return 0;
    into += piece.size_bytes;
  }
  return size_bytes;
}

constexpr std::string_view kFrozen = "<frozen ";

// Code objects that this thread is freeing now, innermost first: half of what they refer to is gone.
struct DyingCode {
  const void* code;
  const DyingCode* outer;
};
constinit thread_local const DyingCode* t_dying = nullptr;

bool is_being_freed(const void* code) noexcept {
  const DyingCode* dying = t_dying;
  while (dying != nullptr && dying->code != code) dying = dying->outer;
  return dying != nullptr;
}

// Calls visit(slot) for each slot of this code object until it returns true; whether it did. Two threads may have
// claimed two slots.
template <class Visit>
bool any_slot(const void* code, Visit visit) noexcept {
  Slot* slots = g_slots.load(std::memory_order_acquire);
  if (slots == nullptr) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(code);
  const std::uint32_t first = first_slot(address);
  for (std::uint32_t probe = 0; probe < kMaxProbes; ++probe) {
    Slot& slot = slots[(first + probe) % kSlotCount];
    const std::uintptr_t found = slot.address.load(std::memory_order_acquire);
    if (found == 0) return false;
    if (found == address && visit(slot)) return true;
  }
  return false;
}

void forget_code(const void* code) noexcept {
  any_slot(code, [](Slot& slot) {
    slot.known.store(0, std::memory_order_relaxed);
    slot.address.store(kFreed, std::memory_order_release);
    g_generation.fetch_add(1, std::memory_order_release);
    return false;
  });
}

void say_full() noexcept {
  if (!g_full_said.exchange(true))
    emit_text(thread_state(), trace::RecordKind::note, 0,
              "python: too many code objects at once, some frames have no name");
}

// A slot of this code object; nullptr: there is none.
Slot* slot_for(const void* code) noexcept {
  Slot* slots = g_slots.load(std::memory_order_acquire);
  if (slots == nullptr || code == nullptr) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(code);
  Slot* slot = find_or_claim(slots, address);
  // Another thread may have taken the last reusable slot meanwhile: there can be another one.
  if (slot == nullptr) slot = find_or_claim(slots, address);
  if (slot == nullptr) say_full();
  return slot;
}

std::uint32_t next_id() noexcept { return g_last_id.fetch_add(1) + 1; }

// Describes a code object; id 0: that was not possible.
template <class Reader>
Known write_code(const void* code, Reader& reader, std::uint32_t id, const trace::Writer& writer,
                 trace::Lease& lease) noexcept {
  if (g_record_due.exchange(false)) emit_python_record(writer, lease);
  Known known{.id = id};
  const std::size_t size_bytes = write_record(code, reader, known, writer, lease);
  if (size_bytes == 0) return {};
  // Published first: a fork child may refer to what it finds in the table.
  trace::publish(lease, size_bytes);
  return known;
}

Known describe_code(const void* code, ProbedReader& reader, const trace::Writer& writer, trace::Lease& lease) noexcept {
  Slot* slot = slot_for(code);
  if (slot == nullptr) return {};
  std::uint64_t number = slot->known.load(std::memory_order_acquire);
  if (is_settled(number)) return Known::from(number);
  if (is_being_freed(code)) return {};
  const Known known = write_code(code, reader, next_id(), writer, lease);
  // Two threads may describe the same code at the same time: the id that comes first stays.
  while (known.id != 0 && !slot->known.compare_exchange_weak(number, known.number(), std::memory_order_acq_rel))
    if (is_settled(number)) return Known::from(number);
  return known;
}

trace::PythonFrame frame_of(const WalkedPythonFrame& frame, Known known) noexcept {
  std::uint16_t flags = frame.flags;
  // A generator's frame starts anew each time. Until 3.10 a frame in the chain has always started: while a trace
  // function hears of its call, no instruction of it has run.
  const bool may_wait = g_python.layout->code_first_traceable != 0 && frame.of_generator == 0;
  if (may_wait && frame.last_instruction_bytes < known.first_traceable_bytes)
    flags |= trace::PythonFrameFlags::incomplete;
  return {.code_id = known.id,
          .last_instruction_bytes = frame.last_instruction_bytes,
          .native_index = trace::kNoNativeIndex,
          .flags = flags,
          .reserved = 0};
}

}  // namespace

bool is_of_frozen_module(const void* code) noexcept {
  ProbedReader reader;
  const RawText file = text_of(reader, reader.load<const void*>(code, g_python.layout->code_file));
  return file.kind == 1 && file.size_bytes > kFrozen.size() && reader.has_range(file.data, kFrozen.size()) &&
         std::string_view(reinterpret_cast<const char*>(file.data), kFrozen.size()) == kFrozen;
}

bool map_code_table() noexcept {
  if (g_slots.load(std::memory_order_acquire) != nullptr) return true;
  void* memory = map_own(kTableBytes);
  if (memory == nullptr) return false;
  report_own_memory(thread_state(), memory, kTableBytes);
  g_slots.store(static_cast<Slot*>(memory), std::memory_order_release);
  return true;
}

trace::PythonFrame describe_frame(const WalkedPythonFrame& frame, const trace::Writer& writer,
                                  trace::Lease& lease) noexcept {
  ProbedReader reader;
  return frame_of(frame, describe_code(frame.code, reader, writer, lease));
}

ForeignFrame describe_foreign_frame(const WalkedPythonFrame& frame, CopiedReader& reader, const trace::Writer& writer,
                                    trace::Lease& lease) noexcept {
  Slot* slot = slot_for(frame.code);
  if (slot == nullptr) return {};
  std::uint64_t number = slot->known.load(std::memory_order_acquire);
  if (is_settled(number)) return {frame_of(frame, Known::from(number)), number, false};
  // While another thread describes it, it gets an id that the table does not have.
  const std::uint32_t id = next_id();
  const bool is_first =
      number == 0 && slot->known.compare_exchange_strong(number, kPending | id, std::memory_order_acq_rel);
  reader.forget();  // what was copied before that may be of what was there before
  const Known known = write_code(frame.code, reader, id, writer, lease);
  if (known.id == 0 && is_first) settle_foreign_code(frame.code, id, false);
  return {frame_of(frame, known), known.number(), known.id != 0 && is_first};
}

trace::PythonFrame frame_of_same_code(const WalkedPythonFrame& frame, std::uint64_t number) noexcept {
  return frame_of(frame, Known::from(number));
}

bool settle_foreign_code(const void* code, std::uint64_t number, bool was_there) noexcept {
  std::uint64_t pending = kPending | Known::from(number).id;
  return any_slot(code, [&](Slot& slot) {
    std::uint64_t expected = pending;
    return slot.known.compare_exchange_strong(expected, was_there ? number : 0, std::memory_order_acq_rel);
  });
}

bool is_known_code(const void* code) noexcept {
  return any_slot(code, [](Slot& slot) { return is_settled(slot.known.load(std::memory_order_acquire)); });
}

void free_code(void* code, Deallocator real) noexcept {
  // In 3.11 a frame that is being left may still refer to it: until it is gone, what is known of it stays.
  const DyingCode dying{.code = code, .outer = t_dying};
  t_dying = &dying;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  real(code);
  forget_code(code);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  t_dying = dying.outer;
}

std::uint64_t code_generation() noexcept { return g_generation.load(std::memory_order_acquire); }

void python_after_fork_in_child(bool shared) noexcept {
  g_python.forked.store(true, std::memory_order_relaxed);
  Slot* slots = g_slots.load(std::memory_order_acquire);
  if (slots == nullptr || shared) return;
  empty_own(slots, kTableBytes);
  g_last_id.store(0);
  g_generation.fetch_add(1);
  g_full_said.store(false);
  g_record_due.store(true);
}

}  // namespace whyrss::shim
