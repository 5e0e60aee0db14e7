#include "shim/stacks/python_waiter.h"

#include <sys/syscall.h>

#include <algorithm>
#include <atomic>

#include "shim/stacks/python_frames.h"
#include "shim/sys/hash.h"
#include "shim/sys/start_check.h"

namespace whyrss::shim {
namespace {

constinit std::atomic<const std::byte*> g_state{nullptr};
constinit std::atomic<std::uintptr_t> g_thread{0};

// Apart from a stack with the same frames of its own.
constexpr std::uint64_t kSeed = 0x9ae16a3b2f90404f;

}  // namespace

void note_waiter(const std::byte* state) noexcept {
  if (g_state.load(std::memory_order_relaxed) == state) return;
  g_thread.store(own_thread(), std::memory_order_relaxed);
  g_state.store(state, std::memory_order_release);
}

void forget_waiter() noexcept { g_state.store(nullptr, std::memory_order_relaxed); }

void WaiterMemo::take(std::span<WalkedPythonFrame> walked, const trace::Writer& writer, trace::Lease& lease) noexcept {
  clear();
  const Waiter waiter{g_state.load(std::memory_order_acquire), g_thread.load(std::memory_order_relaxed)};
  if (waiter.state == nullptr || is_copy_deadly()) return;
  // Not that of the writer, which in a child of a fork within this function is its parent's.
  CopiedReader reader(pages_, own_syscall(SYS_getpid));
  const auto walk = [&] { return walked.first(walk_waiting(waiter, walked.first(kMostFrames), reader)); };
  const std::uint64_t generation = code_generation();
  const std::span<const WalkedPythonFrame> found = walk();
  if (found.empty()) return;
  if (generation == generation_ && std::ranges::equal(found, std::span(walked_).first(known_))) {
    count_ = known_;
    return;
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
