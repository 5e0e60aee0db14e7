#include "shim/stack_capture.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>

#include "shim/emit.h"
#include "shim/hash.h"
#include "shim/loaded_images.h"
#include "shim/observe.h"
#include "shim/own_memory.h"
#include "shim/python_frames.h"
#include "shim/raw_io.h"
#include "shim/stack_modules.h"
#include "shim/unwind_walk.h"

namespace whyrss::shim {
namespace {

// Stacks that the reader knows: 64-bit hash -> id, 64 K slots, 1 MiB touched as used. With 10 K stacks
// two share a hash once in 3e11 runs. A stack that finds no room is described again at each use.
constexpr std::size_t kSlots = 64 * 1024;
constexpr std::size_t kProbes = 16;

struct StackSlot {
  std::atomic<std::uint64_t> hash;
  std::atomic<std::uint64_t> id;  // 0: being stored, or that thread does not exist after a fork; below the
                                  // hash's low half, so that an id that comes late, after the table was
                                  // emptied, is not taken for another stack's
};

constinit StackSlot* g_stacks = nullptr;
constinit std::atomic<std::uint32_t> g_next_id{0};
constinit std::atomic<std::uint32_t> g_epoch{1};  // + 1 when ids start anew: outdates the threads' last id

// These tables, as the reader knows them.
struct TablesName {
  std::uint32_t pid;
  std::uint64_t since_ns;
};
constinit TablesName g_tables{};

using Backtrace = int (*)(void**, int);
constinit Backtrace g_libunwind_backtrace = nullptr;

struct Frames {
  NativeWalk native;
  PythonWalk python;
};

// libunwind knows no stack pointers and begins inside the shim: everything up to the caller is dropped.
NativeWalk walk_with_libunwind(const Caller& caller, StackScratch& scratch) noexcept {
  auto& addresses = scratch.addresses;
  const int saved_errno = errno;
  const int got = g_libunwind_backtrace(reinterpret_cast<void**>(addresses.data()), static_cast<int>(addresses.size()));
  errno = saved_errno;
  auto count = static_cast<std::size_t>(std::max(got, 0));
  std::size_t first = 0;
  while (first < count && addresses[first] != caller.ip) ++first;
  const bool incomplete = first == count;
  const bool truncated = count == addresses.size();
  if (incomplete) {
    first = 0;
    count = 1;
  }
  addresses[first] = caller.ip + (caller.interrupted ? 1 : 0);
  count -= first;
  scratch.memo.set_addresses(addresses.data() + first, count, incomplete);
  return {.first = scratch.memo.first(), .count = count, .truncated = truncated, .incomplete = incomplete};
}

std::uint64_t hash_of(const StackScratch& scratch) noexcept {
  const std::uint64_t hash = mix(scratch.memo.hash(scratch.memo.first()), scratch.python.hash());
  return hash != 0 ? hash : 1;
}

std::uint32_t emit_stack(const Frames& frames, const StackScratch& scratch, const trace::Writer& writer,
                         trace::Lease& lease) noexcept {
  const StackMemo::Frame* native = &scratch.memo.frame(frames.native.first);
  for (std::size_t i = 0; i < frames.native.count; ++i) describe_module(native[i].ip - 1, writer, lease);
  const std::size_t native_bytes = frames.native.count * sizeof(std::uint64_t);
  const std::size_t python_bytes = frames.python.count * sizeof(trace::PythonFrame);
  const std::size_t size_bytes = sizeof(trace::StackRecord) + native_bytes + python_bytes;
  std::byte* bytes = trace::reserve(writer, lease, size_bytes);
  if (bytes == nullptr) return trace::kNoStack;
  const std::uint32_t id = g_next_id.fetch_add(1, std::memory_order_relaxed) + 1;
  std::uint16_t flags = 0;
  if (frames.native.truncated || frames.python.truncated) flags |= trace::StackFlags::truncated;
  if (frames.python.torn) flags |= trace::StackFlags::python_torn;
  if (frames.native.incomplete) flags |= trace::StackFlags::native_incomplete;
  const trace::StackRecord record{.header = header_of(trace::RecordKind::stack, size_bytes),
                                  .stack_id = id,
                                  .native_count = static_cast<std::uint16_t>(frames.native.count),
                                  .python_count = frames.python.count,
                                  .flags = flags,
                                  .reserved16 = 0,
                                  .reserved = 0};
  std::memcpy(bytes, &record, sizeof record);
  for (std::size_t i = 0; i < frames.native.count; ++i)
    std::memcpy(bytes + sizeof record + i * sizeof native->ip, &native[i].ip, sizeof native->ip);
  std::memcpy(bytes + sizeof record + native_bytes, scratch.python.frames().data(), python_bytes);
  trace::publish(lease, size_bytes);
  if ((flags & trace::StackFlags::truncated) != 0 && writer.slot != trace::kNoSlot)
    writer.pool.slots[writer.slot].stacks_truncated.fetch_add(1, std::memory_order_relaxed);
  return id;
}

// The known id of a hash, kNoStack if there is none; `room` is where it may be stored.
std::uint32_t find_stack(std::uint64_t hash, StackSlot*& room) noexcept {
  room = nullptr;
  if (g_stacks == nullptr) return trace::kNoStack;
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    StackSlot& slot = g_stacks[((hash >> 48) + probe) % kSlots];
    const std::uint64_t found = slot.hash.load(std::memory_order_acquire);
    if (found != hash && found != 0) continue;
    room = &slot;
    const std::uint64_t id = slot.id.load(std::memory_order_acquire);
    return found == hash && id >> 32 == (hash & UINT32_MAX) ? static_cast<std::uint32_t>(id) : trace::kNoStack;
  }
  return trace::kNoStack;
}

// Only after the description was published: a fork child may refer to what it finds here.
void store_stack(std::uint64_t hash, std::uint32_t id, StackSlot* room) noexcept {
  std::uint64_t expected = 0;
  if (room == nullptr) return;
  if (room->hash.compare_exchange_strong(expected, hash, std::memory_order_acq_rel) || expected == hash)
    room->id.store(hash << 32 | id, std::memory_order_release);
}

// False: the reader would not know these tables.
bool name_tables(TablesName inherited, const trace::Writer& writer, trace::Lease& lease) noexcept {
  std::byte* bytes = trace::reserve(writer, lease, sizeof(trace::TablesRecord));
  g_tables = {};
  if (bytes == nullptr) return false;
  const trace::RecordHeader header = header_of(trace::RecordKind::tables, sizeof(trace::TablesRecord));
  g_tables = {.pid = writer.pid, .since_ns = header.time_ns};
  const trace::TablesRecord record{.header = header,
                                   .pid = g_tables.pid,
                                   .inherited_pid = inherited.pid,
                                   .since_ns = g_tables.since_ns,
                                   .inherited_since_ns = inherited.since_ns};
  std::memcpy(bytes, &record, sizeof record);
  trace::publish(lease, sizeof record);
  return true;
}

void forget_stacks() noexcept {
  g_epoch.fetch_add(1, std::memory_order_relaxed);
  if (g_stacks != nullptr) empty_own(g_stacks, kSlots * sizeof(StackSlot));
  outdate_stacks();
}

}  // namespace

void stacks_start(bool use_libunwind, const trace::Writer& writer, trace::Lease& lease) noexcept {
  start_unwind_walk();
  start_modules();
  name_tables({}, writer, lease);
  void* memory = map_own(kSlots * sizeof(StackSlot));
  if (memory != nullptr) {
    report_own_memory(thread_state(), memory, kSlots * sizeof(StackSlot));
    g_stacks = static_cast<StackSlot*>(memory);
  }
  python_start(writer, lease);
  if (!use_libunwind) return;
  // Never DT_NEEDED: its _Unwind_* would then take over the program's exceptions.
  void* library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) {
    const Symbol backtrace = symbols_of(*static_cast<const link_map*>(library)).find("unw_backtrace");
    g_libunwind_backtrace = reinterpret_cast<Backtrace>(backtrace.address);
  }
  dlopen(nullptr, RTLD_LAZY);  // succeeds, so that the program's dlerror() does not see that the other one failed
  if (g_libunwind_backtrace == nullptr)
    emit_text(thread_state(), trace::RecordKind::note, 0, "libunwind.so.8 was not found: own unwinder used");
}

constinit std::atomic<std::uint64_t> g_stack_changes{1};

namespace {

// `changes`: before the walk.
void remember_same(const Caller& caller, const NativeWalk& walk, std::uint64_t changes, std::uint32_t id,
                   StackScratch& scratch) noexcept {
  if (caller.interrupted || !walk.lasting || !scratch.memo.can_be_verified() || scratch.python.hash() != 0 ||
      may_have_python())
    return;
  SameStack& same = scratch.same;
  const std::uint64_t* bp = scratch.memo.needed_bp();
  same.sp = caller.sp;
  same.bp = bp != nullptr ? *bp : 0;
  same.bp_mask = bp != nullptr ? ~std::uint64_t{0} : 0;
  same.changes = changes;
  same.id = id;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  same.ip = caller.ip;
  if (scratch.recall != nullptr)
    scratch.recall->learn({.ip = caller.ip, .sp = caller.sp, .bp = caller.bp, .changes = changes}, scratch.memo, id);
  else if (scratch.memo.place_count() <= StackRecall::kPlaces)
    ++scratch.recall_wanted;
}

std::uint32_t take_stack(const Caller& caller, NativeWalk& native, const trace::Writer& writer, trace::Lease& lease,
                         StackScratch& scratch) noexcept {
  Frames frames;
  frames.native =
      g_libunwind_backtrace != nullptr ? walk_with_libunwind(caller, scratch) : walk_native(caller, scratch);
  native = frames.native;
  // The commonest case of a program without Python. What was taken last is in the memos.
  const std::uint32_t known_epoch = g_epoch.load(std::memory_order_relaxed);
  if (frames.native.again && !may_have_python() && scratch.python.hash() == 0 && scratch.last_epoch == known_epoch &&
      scratch.last_hash == hash_of(scratch))
    return scratch.last_id;
  if (may_have_python() || scratch.python.hash() != 0) {
    if (!caller.interrupted) python_start_late(writer, lease);
    frames.python = walk_python(scratch.walked, caller.interrupted ? Access::probed : Access::direct);
    scratch.python.take(std::span(scratch.walked).first(frames.python.count), scratch.memo,
                        g_libunwind_backtrace == nullptr, writer, lease);
  }
  const std::uint64_t hash = hash_of(scratch);
  const std::uint32_t epoch = g_epoch.load(std::memory_order_relaxed);
  if (hash == scratch.last_hash && epoch == scratch.last_epoch) return scratch.last_id;
  StackSlot* room = nullptr;
  std::uint32_t id = find_stack(hash, room);
  if (id == trace::kNoStack) {
    id = emit_stack(frames, scratch, writer, lease);
    if (id != trace::kNoStack) store_stack(hash, id, room);
    // At once where this is the first stack through it: the mapping of its first arena is its first event, as a rule.
    if (!caller.interrupted) python_start_late(writer, lease);
  }
  if (id != trace::kNoStack) {
    scratch.last_hash = hash;
    scratch.last_id = id;
    scratch.last_epoch = epoch;
  }
  return id;
}

}  // namespace

std::uint32_t describe_stack(const Caller& caller, const trace::Writer& writer, trace::Lease& lease,
                             StackScratch& scratch) noexcept {
  const std::uint64_t changes = g_stack_changes.load(std::memory_order_acquire);
  NativeWalk native;
  const std::uint32_t id = take_stack(caller, native, writer, lease, scratch);
  if (id != trace::kNoStack) remember_same(caller, native, changes, id, scratch);
  return id;
}

void stacks_after_fork_in_child(const trace::Writer& writer, trace::Lease& lease) noexcept {
  const bool code_may_be_gone = unwind_walk_after_fork_in_child();
  const TablesName inherited = code_may_be_gone ? TablesName{} : g_tables;
  const bool shared = name_tables(inherited, writer, lease) && inherited.pid != 0;
  python_after_fork_in_child(shared);
  if (shared) return;
  g_next_id.store(0, std::memory_order_relaxed);
  forget_stacks();
  forget_modules();
}

void stacks_before_dlclose() noexcept {
  python_before_dlclose();
  begin_code_removal();
  outdate_stacks();
}

void stacks_after_dlclose() noexcept {
  end_code_removal(true);
  forget_modules();
  // The same return addresses may now be other code: every stack is described again.
  forget_stacks();
}

}  // namespace whyrss::shim
