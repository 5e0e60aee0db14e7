// Code objects and their ids: address -> id, without locks. An entry belongs to its address until
// CPython has freed the code object (free_code, from the wrapped tp_dealloc); code that runs is not freed,
// so that a lookup of it never races with that.
#include <sys/mman.h>
#include <sys/syscall.h>

#include "shim/events/emit.h"
#include "shim/events/own_memory_events.h"
#include "shim/stacks/python_access.h"
#include "shim/stacks/python_frames.h"
#include "shim/stacks/python_interpreter.h"
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
  std::atomic<std::uint64_t> known;     // Known of this code object as a number, 0: being described
};
static_assert(sizeof(Slot) == 16);

// What frames of a code object need to know of it.
struct Known {
  std::uint32_t id = 0;
  std::int32_t first_traceable_bytes = 0;  // frames before it have not started; 0 until 3.10

  static Known from(std::uint64_t number) noexcept { return __builtin_bit_cast(Known, number); }
  [[nodiscard]] std::uint64_t number() const noexcept { return __builtin_bit_cast(std::uint64_t, *this); }
};

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

RawText text_of(ProbedReader& reader, const void* object) noexcept {
  if (!is_of_type(reader, object, g_python.unicode_type)) return {};
  const PythonLayout& layout = *g_python.layout;
  const auto state = reader.load<std::uint32_t>(object, layout.text_state);
  const auto kind = static_cast<std::uint8_t>((state >> layout.text_kind_bit) & 7);  // bytes per character
  if (((state >> layout.text_compact_bit) & 1) == 0 || (kind != 1 && kind != 2 && kind != 4)) return {};
  const bool is_ascii = ((state >> layout.text_ascii_bit) & 1) != 0;
  const std::size_t offset = is_ascii ? layout.ascii_data : layout.compact_data;
  return {.data = static_cast<const std::byte*>(object) + offset,
          .size_bytes = reader.load<std::size_t>(object, layout.text_length) * kind,
          .kind = kind};
}

RawText line_table_of(ProbedReader& reader, const void* object) noexcept {
  if (!is_of_type(reader, object, g_python.bytes_type)) return {};
  return {.data = static_cast<const std::byte*>(object) + g_python.layout->bytes_data,
          .size_bytes = reader.load<std::size_t>(object, g_python.layout->bytes_size)};
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
bool is_alive(ProbedReader& reader, const void* object) noexcept {
  const PythonLayout& layout = *g_python.layout;
  if (layout.free_threaded)  // the lowest bits of the shared count are flags
    return reader.load<std::uint32_t>(object, layout.object_local_count) != 0 ||
           reader.load<std::uint64_t>(object, layout.object_shared_count) > 3;
  const auto count = reader.load<std::uint64_t>(object, 0);
  return (count & UINT32_MAX) != 0 && ((count >> 32) & UINT16_MAX) == 0;
}

// Writes the record without publishing it; its size, 0 when there was no room or nothing to read. Once per
// code object, so that looking before each read costs nothing that matters; and in CPython 3.11 the frame
// that is just being left can hold a code object that is gone.
std::size_t write_record(const void* code, Known& known, const trace::Writer& writer, trace::Lease& lease) noexcept {
  const PythonLayout& layout = *g_python.layout;
  ProbedReader reader;
  if (!is_of_type(reader, code, g_python.code_type) || !is_alive(reader, code)) return 0;
  const auto text_at = [&](std::size_t offset) { return text_of(reader, reader.load<const void*>(code, offset)); };
  RawText file = text_at(layout.code_file);
  RawText name = text_at(layout.code_name);
  RawText qualname = layout.code_qualname != 0 ? text_at(layout.code_qualname) : RawText{};
  RawText lines = line_table_of(reader, reader.load<const void*>(code, layout.code_line_table));
  const auto first_line = reader.load<std::uint32_t>(code, layout.code_first_line);
  if (layout.code_first_traceable != 0)
    known.first_traceable_bytes = reader.load<std::int32_t>(code, layout.code_first_traceable) * kUnitBytes;
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
    if (piece.size_bytes != 0) __builtin_memcpy(into, piece.data, piece.size_bytes);
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

void forget_code(const void* code) noexcept {
  Slot* slots = g_slots.load(std::memory_order_acquire);
  if (slots == nullptr) return;
  const auto address = reinterpret_cast<std::uintptr_t>(code);
  const std::uint32_t first = first_slot(address);
  for (std::uint32_t probe = 0; probe < kMaxProbes; ++probe) {
    Slot& slot = slots[(first + probe) % kSlotCount];
    const std::uintptr_t found = slot.address.load(std::memory_order_acquire);
    if (found == 0) return;
    if (found != address) continue;  // to the end: two threads may have claimed two slots
    slot.known.store(0, std::memory_order_relaxed);
    slot.address.store(kFreed, std::memory_order_release);
    g_generation.fetch_add(1, std::memory_order_release);
  }
}

void say_full() noexcept {
  if (!g_full_said.exchange(true))
    emit_text(thread_state(), trace::RecordKind::note, 0,
              "python: too many code objects at once, some frames have no name");
}

Known describe_code(const void* code, const trace::Writer& writer, trace::Lease& lease) noexcept {
  Slot* slots = g_slots.load(std::memory_order_acquire);
  if (slots == nullptr || code == nullptr) return {};
  const auto address = reinterpret_cast<std::uintptr_t>(code);
  Slot* slot = find_or_claim(slots, address);
  // Another thread may have taken the last reusable slot meanwhile: there can be another one.
  if (slot == nullptr) slot = find_or_claim(slots, address);
  if (slot == nullptr) {
    say_full();
    return {};
  }
  if (const std::uint64_t number = slot->known.load(std::memory_order_acquire); number != 0) return Known::from(number);
  if (is_being_freed(code)) return {};
  if (g_record_due.exchange(false)) emit_python_record(writer, lease);
  // Two threads may describe the same code at the same time: the id that comes first stays.
  Known known{.id = g_last_id.fetch_add(1) + 1};
  const std::size_t size_bytes = write_record(code, known, writer, lease);
  if (size_bytes == 0) return {};
  // Published first: a fork child may refer to what it finds in the table.
  trace::publish(lease, size_bytes);
  std::uint64_t first = 0;
  if (!slot->known.compare_exchange_strong(first, known.number(), std::memory_order_acq_rel)) return Known::from(first);
  return known;
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
  const Known known = describe_code(frame.code, writer, lease);
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
