#include "shim/stacks/python_waiter.h"

#include <sys/syscall.h>

#include <algorithm>
#include <atomic>

#include "shim/stacks/python_frames.h"
#include "shim/sys/hash.h"
#include "shim/sys/own_memory.h"
#include "shim/sys/start_check.h"
#include "shim/trace/clock.h"

namespace whyrss::shim {
namespace {

// Of the thread that is noted.
constinit std::atomic<const std::byte*> g_state{nullptr};
constinit std::atomic<std::uintptr_t> g_thread{0};
constinit std::atomic<bool> g_is_main{false};

// The last events of a Python thread, by its state: from which Python instruction they were in which code. Several: a
// call of a library may allocate in libc as well, and in the loader.
struct LibraryCall {
  static constexpr std::size_t kAddresses = 4;
  std::atomic<const std::byte*> state;
  std::atomic<const void*> code;
  std::atomic<std::int32_t> instruction;
  std::atomic<std::uint32_t> next;                               // to be replaced, modulo kAddresses
  std::array<std::atomic<std::uint64_t>, kAddresses> addresses;  // 0: none, or it is being changed
};
constexpr unsigned kCallBits = 6;
constinit std::array<LibraryCall, std::size_t{1} << kCallBits> g_calls{};

LibraryCall& call_of(const std::byte* state) noexcept {
  return g_calls[(reinterpret_cast<std::uintptr_t>(state) * 0x9e3779b97f4a7c15ULL) >> (64 - kCallBits)];
}

// Apart from a stack with the same frames of its own.
constexpr std::uint64_t kSeed = 0x9ae16a3b2f90404f;

// A server's pool of threads; with more, which one called is not asked.
constexpr std::size_t kMostThreads = 64;
// What was found holds for at most so many times as long as it took to find it; less at first where it was not certain.
constexpr std::uint32_t kLongestHold = 20;
// Frames that were read are taken for those of now for so many times as long as it took to read them.
constexpr std::uint64_t kFresh = 10;
// Neither for longer than this: that may have taken long because this thread was preempted.
constexpr std::uint64_t kLongestHoldNs = 10'000'000, kLongestFreshNs = 50'000;
// The list of threads may change while it is read.
constexpr int kTries = 3;

// The first of the list that a thread is in. State nullptr: it is not in one any more.
Waiter first_of_list(Waiter waiter, CopiedReader& reader) noexcept {
  for (std::size_t i = 0; i < kMostThreads; ++i) {
    const Waiter previous = waiter_beside(waiter, Side::previous, reader);
    if (previous.state == nullptr) return reader.failed() ? Waiter{} : waiter;
    waiter = previous;
  }
  return {};
}

}  // namespace

void note_python_thread(const std::byte* state, bool is_main) noexcept {
  if (g_state.load(std::memory_order_relaxed) == state) return;
  if (!is_main && g_is_main.load(std::memory_order_relaxed)) return;
  g_thread.store(own_thread(), std::memory_order_relaxed);
  g_is_main.store(is_main, std::memory_order_relaxed);
  g_state.store(state, std::memory_order_release);
}

void note_library_call(const std::byte* state, const WalkedPythonFrame& innermost, std::uint64_t address) noexcept {
  LibraryCall& call = call_of(state);
  const bool is_same = call.state.load(std::memory_order_relaxed) == state &&
                       call.code.load(std::memory_order_relaxed) == innermost.code &&
                       call.instruction.load(std::memory_order_relaxed) == innermost.last_instruction_bytes;
  if (is_same) {
    for (const std::atomic<std::uint64_t>& known : call.addresses)
      if (known.load(std::memory_order_relaxed) == address) return;
  } else {
    for (std::atomic<std::uint64_t>& known : call.addresses) known.store(0, std::memory_order_relaxed);
    call.state.store(state, std::memory_order_release);
    call.code.store(innermost.code, std::memory_order_release);
    call.instruction.store(innermost.last_instruction_bytes, std::memory_order_release);
  }
  const std::uint32_t next = call.next.load(std::memory_order_relaxed);
  call.next.store(next + 1, std::memory_order_relaxed);
  call.addresses[next % LibraryCall::kAddresses].store(address, std::memory_order_release);
}

void forget_python_threads() noexcept {
  g_state.store(nullptr, std::memory_order_relaxed);
  g_is_main.store(false, std::memory_order_relaxed);
}

void WaiterMemo::clear_for_python() noexcept {
  clear();
  if (gave_back_ || pages_.next == 0) return;
  gave_back_ = true;
  pages_.address = {};
  pages_.next = 0;
  // As far as they are pages of their own.
  constexpr std::uintptr_t kPage = CopiedPages::kBytes;
  const auto start = reinterpret_cast<std::uintptr_t>(pages_.bytes.data());
  const std::uintptr_t first = (start + kPage - 1) & ~(kPage - 1), end = (start + sizeof pages_.bytes) & ~(kPage - 1);
  empty_own(reinterpret_cast<void*>(first), end - first);
}

bool WaiterMemo::take(const StackMemo* native, std::span<WalkedPythonFrame> walked, const trace::Writer& writer,
                      trace::Lease& lease) noexcept {
  clear();
  const Waiter known{g_state.load(std::memory_order_acquire), g_thread.load(std::memory_order_relaxed)};
  if (known.state == nullptr || is_copy_deadly()) return true;
  const std::uint64_t begin_ns = trace::now_ns();
  if (begin_ns < fresh_until_ns_ && (held_ == 0 || generation_ == code_generation())) {
    count_ = held_;
    return true;
  }
  // Not that of the writer, which in a child of a fork within this function is its parent's.
  const long own_pid = own_syscall(SYS_getpid);
  const bool is_new = begin_ns >= holds_until_ns_;
  if (is_new && native == nullptr) return false;
  if (is_new) find_waiter_again(known, *native, walked, own_pid, begin_ns);
  held_ = 0;
  const std::uint64_t asked_ns = is_new ? trace::now_ns() : begin_ns;
  if (waiter_.state != nullptr) take_frames(walked, is_new, own_pid, writer, lease);
  held_ = count_;
  const std::uint64_t end_ns = trace::now_ns();
  fresh_until_ns_ = end_ns + std::min(kFresh * (end_ns - asked_ns), kLongestFreshNs);
  return true;
}

void WaiterMemo::find_waiter_again(const Waiter& known, const StackMemo& native, std::span<WalkedPythonFrame> walked,
                                   long own_pid, std::uint64_t begin_ns) noexcept {
  libraries_.take(native);
  Search found;
  for (int i = 0; i < kTries && !found.whole; ++i) found = find_waiter(known, walked, own_pid);
  waiter_ = found.waiter;
  is_known_ = found.is_known;
  hold_ = found.is_certain ? kLongestHold : std::clamp(2 * hold_, 1U, kLongestHold);
  const std::uint64_t end_ns = trace::now_ns();
  holds_until_ns_ = end_ns + std::min(hold_ * (end_ns - begin_ns), kLongestHoldNs);
}

WaitsThere WaiterMemo::is_in_call(const Waiter& waiter, const WalkedPythonFrame& innermost,
                                  WaitsThere is_blocked_there) const noexcept {
  if (is_blocked_there != WaitsThere::unknown) return is_blocked_there;
  const LibraryCall& call = call_of(waiter.state);
  const auto was_there = [&](const std::atomic<std::uint64_t>& noted) {
    const std::uint64_t address = noted.load(std::memory_order_acquire);
    return address != 0 && libraries_.hold(address - 1) && call.state.load(std::memory_order_acquire) == waiter.state &&
           call.code.load(std::memory_order_acquire) == innermost.code &&
           call.instruction.load(std::memory_order_acquire) == innermost.last_instruction_bytes &&
           noted.load(std::memory_order_relaxed) == address;
  };
  return std::ranges::any_of(call.addresses, was_there) ? WaitsThere::yes : WaitsThere::unknown;
}

WaiterMemo::Search WaiterMemo::find_waiter(const Waiter& known, std::span<WalkedPythonFrame> walked,
                                           long own_pid) noexcept {
  Waiter caller, candidate;
  std::size_t callers = 0, candidates = 0, threads = 0, attached = 0;
  CopiedReader list(pages_, own_pid);
  list.forget();
  for (Waiter waiter = first_of_list(known, list); waiter.state != nullptr;
       waiter = waiter_beside(waiter, Side::next, list)) {
    if (++threads > kMostThreads) return {.waiter = {}, .is_known = false, .whole = true, .is_certain = true};
    CopiedReader reader(pages_, own_pid);
    if (waiter.thread == own_thread()) continue;
    if (!is_waiting(waiter, reader)) {
      ++attached;
      continue;
    }
    const WaitsThere blocked = waits_in(libraries_, waiter.thread, own_pid);
    if (blocked == WaitsThere::no || walk_waiting(waiter, walked.first(1), reader) == 0) continue;
    const bool is_caller = is_in_call(waiter, walked[0], blocked) == WaitsThere::yes;
    (is_caller ? caller : candidate) = waiter;
    ++(is_caller ? callers : candidates);
  }
  if (list.failed()) return {};
  const bool takes_part = callers == 0 && candidates == 1 && attached == 0 && libraries_.is_joined();
  return {.waiter = callers == 1 ? caller : (takes_part ? candidate : Waiter{}),
          .is_known = callers == 1,
          .whole = true,
          .is_certain = callers != 0 || candidates == 0};
}

// Of the waiter that was found, now or before: it may have gone on since, and is checked again where it stands
// elsewhere.
void WaiterMemo::take_frames(std::span<WalkedPythonFrame> walked, bool is_new, long own_pid,
                             const trace::Writer& writer, trace::Lease& lease) noexcept {
  CopiedReader reader(pages_, own_pid);
  const auto walk = [&] { return walked.first(walk_waiting(waiter_, walked.first(kMostFrames), reader)); };
  const std::uint64_t generation = code_generation();
  const std::span<const WalkedPythonFrame> found = walk();
  if (found.empty()) return;
  if (generation == generation_ && std::ranges::equal(found, std::span(walked_).first(known_))) {
    count_ = known_;
    return;
  }
  if (!is_new) {
    const WaitsThere there = is_in_call(waiter_, found[0], waits_in(libraries_, waiter_.thread, own_pid));
    if (there == WaitsThere::no || (is_known_ && there != WaitsThere::yes)) return;
  }
  // While it is rewritten: a signal handler of the program may leave by longjmp at any point.
  known_ = 0;
  generation_ = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::uint64_t hash = kSeed;
  bool has_ids = true;
  for (std::size_t i = 0; i < found.size(); ++i) {
    walked_[i] = found[i];
    std::size_t same = 0;
    while (walked_[same].code != found[i].code) ++same;
    const ForeignFrame described =
        same < i ? ForeignFrame{frame_of_same_code(found[i], numbers_[same]), numbers_[same], false}
                 : describe_foreign_frame(found[i], reader, writer, lease);
    frames_[i] = described.frame;
    numbers_[i] = described.number;
    pending_[i] = described.pending;
    has_ids &= frames_[i].code_id != 0;
    hash = mix(hash,
               std::uint64_t{frames_[i].code_id} << 32 | static_cast<std::uint32_t>(frames_[i].last_instruction_bytes));
  }
  const std::span<const WalkedPythonFrame> taken = std::span(walked_).first(found.size());
  const bool stood_still = std::ranges::equal(walk(), taken) && code_generation() == generation;
  for (std::size_t i = 0; i < taken.size(); ++i)
    if (pending_[i]) has_ids &= settle_foreign_code(taken[i].code, numbers_[i], stood_still);
  if (!stood_still || !has_ids) return;
  hash_ = hash;
  known_ = count_ = taken.size();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  generation_ = generation;
}

}  // namespace whyrss::shim
