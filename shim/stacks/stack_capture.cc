#include "shim/stacks/stack_capture.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>

#include "shim/events/emit.h"
#include "shim/stacks/python_frames.h"
#include "shim/stacks/stack_ids.h"
#include "shim/stacks/stack_modules.h"
#include "shim/stacks/unwind_walk.h"
#include "shim/sys/hash.h"
#include "shim/sys/loaded_images.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

constinit StackIds g_stacks;
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

std::uint64_t hash_of(std::uint64_t native, const StackScratch& scratch) noexcept {
  std::uint64_t hash = mix(native, scratch.python.hash());
  if (scratch.waiter.hash() != 0) hash = mix(hash, scratch.waiter.hash());
  return hash != 0 ? hash : 1;
}
std::uint64_t hash_of(const StackScratch& scratch) noexcept {
  return hash_of(scratch.memo.hash(scratch.memo.first()), scratch);
}

std::uint32_t emit_stack(const Frames& frames, const StackScratch& scratch, const trace::Writer& writer,
                         trace::Lease& lease) noexcept {
  const StackMemo::Frame* native = &scratch.memo.frame(frames.native.first);
  for (std::size_t i = 0; i < frames.native.count; ++i) describe_module(native[i].ip - 1, writer, lease);
  const std::size_t native_bytes = frames.native.count * sizeof(std::uint64_t);
  const std::span<const trace::PythonFrame> python = scratch.python.frames();
  const std::span<const trace::PythonFrame> waiting = scratch.waiter.frames();
  const std::size_t size_bytes = sizeof(trace::StackRecord) + native_bytes + python.size_bytes() + waiting.size_bytes();
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
                                  .python_count = static_cast<std::uint16_t>(python.size()),
                                  .flags = flags,
                                  .waiting_count = static_cast<std::uint16_t>(waiting.size()),
                                  .reserved = 0};
  std::memcpy(bytes, &record, sizeof record);
  for (std::size_t i = 0; i < frames.native.count; ++i)
    std::memcpy(bytes + sizeof record + i * sizeof native->ip, &native[i].ip, sizeof native->ip);
  std::memcpy(bytes + sizeof record + native_bytes, python.data(), python.size_bytes());
  std::memcpy(bytes + sizeof record + native_bytes + python.size_bytes(), waiting.data(), waiting.size_bytes());
  trace::publish(lease, size_bytes);
  if ((flags & trace::StackFlags::truncated) != 0 && writer.slot != trace::kNoSlot)
    writer.pool.slots[writer.slot].stacks_truncated.fetch_add(1, std::memory_order_relaxed);
  return id;
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
  g_stacks.empty();
  outdate_stacks();
}

}  // namespace

void stacks_start(bool use_libunwind, const trace::Writer& writer, trace::Lease& lease) noexcept {
  start_unwind_walk();
  start_modules();
  name_tables({}, writer, lease);
  g_stacks.start(thread_state());
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
void remember_same(const Caller& caller, std::uint64_t changes, std::uint32_t id, StackScratch& scratch) noexcept {
  SameStack& same = scratch.same;
  const std::uint64_t* bp = scratch.memo.needed_bp();
  same.sp = caller.sp;
  same.bp = bp != nullptr ? *bp : 0;
  same.bp_mask = bp != nullptr ? ~std::uint64_t{0} : 0;
  same.changes = changes;
  same.id = id;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  same.ip = caller.ip;
}

// The Python frames, of which only those are walked that are not as they were last time.
PythonWalk take_python(const Caller& caller, const trace::Writer& writer, trace::Lease& lease,
                       StackScratch& scratch) noexcept {
  PythonTrail& trail = scratch.trail;
  if (!scratch.python.begin()) trail.forget();
  const PythonWalk walk = caller.interrupted ? walk_python(scratch.walked, Access::probed)
                                             : walk_python(scratch.walked, Access::direct, &trail);
  if (walk.met != nullptr && trail.is_unchanged(walk.met)) return walk;
  const std::size_t rest = walk.met != nullptr ? walk.met->python : PythonMemo::kEnd;
  const bool has_ids = scratch.python.take(std::span(scratch.walked).first(walk.count), rest, writer, lease);
  if (!caller.interrupted && walk.whole && has_ids)
    trail.remember(walk.met, rest, walk.torn, [&](std::size_t i) { return scratch.walked[i].eval_address; });
  else
    trail.forget();
  return walk;
}

// In a thread that has none, those of the thread that waits for it. `native`: the stack as walked, nullptr: it was not.
// False: that is needed.
bool take_frames(const Caller& caller, const StackMemo* native, PythonWalk& walk, const trace::Writer& writer,
                 trace::Lease& lease, StackScratch& scratch) noexcept {
  walk = take_python(caller, writer, lease, scratch);
  const bool is_main = writer.tid == writer.pid;
  if (walk.state != nullptr) note_python_thread(walk.state, is_main);
  const WalkedPythonFrame* innermost = scratch.python.innermost();
  // Where a signal came, it may be within libc, which a library has called.
  if (walk.state != nullptr && innermost != nullptr && !caller.interrupted)
    note_library_call(walk.state, *innermost, caller.ip);
  if (!is_main && !walk.torn && !walk.unknown && scratch.python.hash() == 0)
    return scratch.waiter.take(native, scratch.walked, writer, lease);
  innermost != nullptr ? scratch.waiter.clear_for_python() : scratch.waiter.clear();
  return true;
}

// What is recalled of a stack with Python frames is no id: the two are kept apart.
RecallKey recall_key(const Caller& caller, std::uint64_t changes, bool has_python) noexcept {
  return {.ip = caller.ip, .sp = caller.sp, .bp = caller.bp, .changes = changes << 1 | (has_python ? 1 : 0)};
}

// For recalls: of a stack with Python frames the sum of its native part, of another one its id.
void remember(const Caller& caller, const NativeWalk& walk, std::uint64_t changes, std::uint32_t id,
              StackScratch& scratch) noexcept {
  if (caller.interrupted || !walk.lasting || !scratch.memo.can_be_verified()) return;
  const bool has_python = scratch.python.hash() != 0 || may_have_python();
  if (!has_python) remember_same(caller, changes, id, scratch);
  if (scratch.recall != nullptr)
    scratch.recall->learn(recall_key(caller, changes, has_python), scratch.memo,
                          has_python ? scratch.memo.hash(scratch.memo.first()) : id);
  else if (scratch.memo.place_count() <= StackRecall::kPlaces)
    ++scratch.recall_wanted;
}

// The native part by recall, the Python part as far as it changed. kNoStack: either is not known, or not both together.
std::uint32_t recall_stack(const Caller& caller, const trace::Writer& writer, trace::Lease& lease,
                           StackScratch& scratch) noexcept {
  if (scratch.recall == nullptr || caller.interrupted || g_libunwind_backtrace != nullptr) return trace::kNoStack;
  const bool has_python = is_python_known();
  if (!has_python && (may_have_python() || scratch.python.hash() != 0)) return trace::kNoStack;
  const std::uint64_t native =
      scratch.recall->find(recall_key(caller, g_stack_changes.load(std::memory_order_acquire), has_python));
  if (native == 0 || !has_python) return static_cast<std::uint32_t>(native);
  PythonWalk walk;
  if (!take_frames(caller, nullptr, walk, writer, lease, scratch)) return trace::kNoStack;
  const std::uint64_t hash = hash_of(native, scratch);
  const std::uint32_t epoch = g_epoch.load(std::memory_order_relaxed);
  if (const std::uint32_t id = scratch.recall->id_of(hash, epoch); id != trace::kNoStack) return id;
  const std::uint32_t id = g_stacks.find(hash).id;
  if (id != trace::kNoStack) scratch.recall->learn_id(hash, epoch, id);
  return id;
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
    take_frames(caller, &scratch.memo, frames.python, writer, lease, scratch);
  } else {
    scratch.waiter.clear();
  }
  const std::uint64_t hash = hash_of(scratch);
  const std::uint32_t epoch = g_epoch.load(std::memory_order_relaxed);
  if (hash == scratch.last_hash && epoch == scratch.last_epoch) return scratch.last_id;
  StackIds::Found found = g_stacks.find(hash);
  if (found.id == trace::kNoStack && found.room == nullptr && !caller.interrupted && g_stacks.grow(thread_state()))
    found = g_stacks.find(hash);
  std::uint32_t id = found.id;
  if (id == trace::kNoStack) {
    scratch.python.place(scratch.memo, g_libunwind_backtrace == nullptr);
    id = emit_stack(frames, scratch, writer, lease);
    if (id != trace::kNoStack) g_stacks.store(hash, id, found.room);
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
  if (const std::uint32_t id = recall_stack(caller, writer, lease, scratch); id != trace::kNoStack) return id;
  const std::uint64_t changes = g_stack_changes.load(std::memory_order_acquire);
  NativeWalk native;
  const std::uint32_t id = take_stack(caller, native, writer, lease, scratch);
  if (id != trace::kNoStack) remember(caller, native, changes, id, scratch);
  return id;
}

void stacks_after_fork_in_child(const trace::Writer& writer, trace::Lease& lease) noexcept {
  const bool code_may_be_gone = unwind_walk_after_fork_in_child();
  const TablesName inherited = code_may_be_gone ? TablesName{} : g_tables;
  const bool shared = name_tables(inherited, writer, lease) && inherited.pid != 0;
  python_after_fork_in_child(shared);
  forget_python_threads();
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
