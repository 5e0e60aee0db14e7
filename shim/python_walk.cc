// Walks the calling thread's Python frames with plain loads: inside malloc, mmap and fork hooks the
// interpreter is between two instructions of C code that call out, and its chain is consistent.
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shim/emit.h"
#include "shim/python_frames.h"
#include "shim/python_interpreter.h"
#include "shim/raw_io.h"

namespace whyrss::shim {
namespace {

using Flags = trace::PythonFrameFlags;

// Further frames that are followed only to learn the eval call of the last ones that had room.
constexpr std::uint32_t kMaxHops = 1U << 16;
// A frame that has not started yet is in the prologue of its code (cells, generator creation).
constexpr std::int32_t kMaxPrologueBytes = 1024;
constexpr std::int32_t kUnitBytes = 2;
// _PyStackRef of 3.14: the low bits are tags; 0 in earlier versions.
constexpr std::uintptr_t kStackRefTags = 3;

std::uintptr_t self_thread() noexcept {
  std::uintptr_t self;
  __asm__("mov %%fs:0x10, %0" : "=r"(self));
  return self;
}

// Of a state that may belong to a thread that is just leaving: its memory may be gone.
bool is_own_foreign_state(const std::byte* state, std::size_t thread_id_offset) noexcept {
  std::uintptr_t thread_id = 0;
  iovec local{.iov_base = &thread_id, .iov_len = sizeof(thread_id)};
  iovec remote{.iov_base = const_cast<std::byte*>(state) + thread_id_offset, .iov_len = sizeof(thread_id)};
  const long copied =
      raw_syscall(SYS_process_vm_readv, raw_syscall(SYS_getpid), as_long(&local), 1, as_long(&remote), 1, 0);
  return copied == sizeof(thread_id) && thread_id == self_thread();
}

// This thread's own state is alive and so is its interpreter: both reads are safe.
bool has_subinterpreters(const std::byte* own_state) noexcept {
  if (g_python.first_interpreter == nullptr || g_python.next_interpreter == nullptr) return true;
  const void* first = g_python.first_interpreter();
  return first != load_at<const void*>(own_state, kThreadInterpreter) || g_python.next_interpreter(first) != nullptr;
}

template <PythonLayout kLayout>
const std::byte* current_state() noexcept {
  // This order: in a libpython that came by dlopen, the second call may touch TLS for the first time.
  const std::byte* own = g_python.this_thread_state();
  if (own == nullptr) return nullptr;
  const std::byte* attached = g_python.attached_state();
  if (kLayout.family >= FrameFamily::cframe_boundary) {
    if (attached != nullptr) own = attached;
  } else if (attached != own && attached != nullptr && has_subinterpreters(own) &&
             is_own_foreign_state(attached, kLayout.thread_id)) {
    own = attached;
  }
  return load_at<std::uintptr_t>(own, kLayout.thread_id) == self_thread() ? own : nullptr;
}

// Collects frames; gives those of one eval call its address.
class Collector {
 public:
  explicit Collector(std::span<WalkedPythonFrame> frames) noexcept : frames_(frames) {}

  void add(const void* code, std::int32_t last_instruction_bytes, std::uint16_t flags,
           std::uint64_t eval_address) noexcept {
    if (count_ == frames_.size()) {
      truncated_ = true;
      return;
    }
    frames_[count_++] = {.code = code,
                         .last_instruction_bytes = last_instruction_bytes,
                         .flags = flags,
                         .reserved = 0,
                         .eval_address = eval_address};
  }

  // The frames since the last call ran in the eval call at this address.
  void end_eval_call(std::uint64_t eval_address) noexcept {
    for (std::size_t i = eval_begin_; i < count_; ++i) frames_[i].eval_address = eval_address;
    if (count_ > eval_begin_ && !truncated_) frames_[count_ - 1].flags |= Flags::entry;
    eval_begin_ = count_;
  }

  // Nothing more would be learnt from the frames that follow.
  [[nodiscard]] bool is_done() const noexcept { return truncated_ && eval_begin_ == count_; }
  [[nodiscard]] bool is_truncated() const noexcept { return truncated_; }
  [[nodiscard]] bool in_eval_call() const noexcept { return eval_begin_ != count_; }

  [[nodiscard]] PythonWalk finish(bool torn) const noexcept {
    return {.count = static_cast<std::uint16_t>(count_), .truncated = truncated_, .torn = torn};
  }

 private:
  std::span<WalkedPythonFrame> frames_;
  std::size_t count_ = 0, eval_begin_ = 0;
  bool truncated_ = false;
};

bool is_misaligned(const void* frame) noexcept { return (reinterpret_cast<std::uintptr_t>(frame) & 7) != 0; }

// 3.8 to 3.10: one C eval call per frame.
template <PythonLayout kLayout>
PythonWalk walk_objects(const std::byte* state, Collector& collector) noexcept {
  constexpr bool kHasCframe = kLayout.family == FrameFamily::objects_cframe;
  constexpr std::int32_t kInstructionBytes = kHasCframe ? kUnitBytes : 1;  // f_lasti counts units in 3.10
  const auto* frame = load_at<const std::byte*>(state, kLayout.innermost);
  const std::byte* cframe = kHasCframe ? load_at<const std::byte*>(state, kLayout.cframe) : nullptr;
  const std::byte* root = state + kLayout.root_cframe;
  while (frame != nullptr) {
    if (is_misaligned(frame)) return collector.finish(true);
    if (cframe == root) cframe = nullptr;
    collector.add(load_at<const void*>(frame, kLayout.frame_code),
                  load_at<std::int32_t>(frame, kLayout.frame_instruction) * kInstructionBytes, Flags::entry,
                  reinterpret_cast<std::uint64_t>(cframe));
    if (collector.is_truncated()) return collector.finish(false);
    if (cframe != nullptr) cframe = load_at<const std::byte*>(cframe, kLayout.cframe_previous);
    frame = load_at<const std::byte*>(frame, kLayout.frame_previous);
  }
  return collector.finish(false);
}

// 3.11 and later: one _PyInterpreterFrame. Adds it with its place in the bytecode: the distance of its
// instruction pointer from the code, as traceback takes it (3.11, 3.12: the instruction begun last;
// later: the one that runs).
template <PythonLayout kLayout>
void add_frame(const std::byte* frame, std::uint8_t owner, std::uint64_t eval_address, Collector& collector) noexcept {
  const auto code = load_at<std::uintptr_t>(frame, kLayout.frame_code) & ~kStackRefTags;
  const auto instruction = load_at<std::uintptr_t>(frame, kLayout.frame_instruction);
  const auto last = static_cast<std::int32_t>(instruction - (code + kLayout.code_bytecode));
  std::uint16_t flags = 0;
  if (owner != kOwnedByGenerator && last < kMaxPrologueBytes &&
      last < kUnitBytes * load_at<std::int32_t>(reinterpret_cast<const void*>(code), kLayout.code_first_traceable))
    flags = Flags::incomplete;
  collector.add(reinterpret_cast<const void*>(code), last, flags, eval_address);
}

template <PythonLayout kLayout>
PythonWalk walk_entry_flag(const std::byte* state, Collector& collector) noexcept {
  const std::byte* root = state + kLayout.root_cframe;
  const auto* cframe = load_at<const std::byte*>(state, kLayout.cframe);
  if (cframe == nullptr) return collector.finish(false);
  const auto* frame = load_at<const std::byte*>(cframe, kLayout.cframe_current);
  if (frame == nullptr) return collector.finish(cframe != root);
  bool bottom_is_generator = false;
  while (frame != nullptr) {
    if (is_misaligned(frame) || cframe == nullptr) return collector.finish(true);
    const auto owner = load_at<std::uint8_t>(frame, kLayout.frame_owner);
    add_frame<kLayout>(frame, owner, cframe == root ? 0 : reinterpret_cast<std::uint64_t>(cframe), collector);
    if (collector.is_truncated()) return collector.finish(false);
    bottom_is_generator = owner == kOwnedByGenerator;
    if (load_at<std::uint8_t>(frame, kLayout.frame_is_entry) != 0) {
      if (cframe != root) {
        collector.end_eval_call(reinterpret_cast<std::uint64_t>(cframe));
        cframe = load_at<const std::byte*>(cframe, kLayout.cframe_previous);
      } else {
        collector.end_eval_call(0);
      }
    }
    frame = load_at<const std::byte*>(frame, kLayout.frame_previous);
  }
  // A greenlet's chain ends before the root: complete all the same, but said to be torn.
  return collector.finish(cframe != root || bottom_is_generator);
}

// 3.12 and later: every C eval call has a frame of its own, on the C stack, without Python code.
template <PythonLayout kLayout>
PythonWalk walk_boundary(const std::byte* state, Collector& collector) noexcept {
  const std::byte* frame;
  if constexpr (kLayout.family == FrameFamily::cframe_boundary) {
    const auto* cframe = load_at<const std::byte*>(state, kLayout.cframe);
    if (cframe == nullptr) return collector.finish(false);
    frame = load_at<const std::byte*>(cframe, kLayout.cframe_current);
    if (frame == nullptr) return collector.finish(cframe != state + kLayout.root_cframe);
  } else {
    frame = load_at<const std::byte*>(state, kLayout.innermost);
  }
  for (std::uint32_t hops = 0; frame != nullptr && hops < kMaxHops && !collector.is_done(); ++hops) {
    if (is_misaligned(frame)) return collector.finish(true);
    const auto owner = load_at<std::uint8_t>(frame, kLayout.frame_owner);
    if (owner < kBoundaryOwner) {
      add_frame<kLayout>(frame, owner, 0, collector);
    } else {
      // The outermost boundary of 3.15 lies in the thread state, not on the stack.
      const bool on_stack = kLayout.base_frame == 0 || frame != state + kLayout.base_frame;
      collector.end_eval_call(on_stack ? reinterpret_cast<std::uint64_t>(frame) : 0);
    }
    frame = load_at<const std::byte*>(frame, kLayout.frame_previous);
  }
  return collector.finish(collector.in_eval_call() && !collector.is_truncated());
}

// Once per process: what the walk reads must agree with what the system and the types say.
template <PythonLayout kLayout>
bool is_plausible(const std::byte* state, const WalkedPythonFrame& innermost) noexcept {
  // A forked child's state holds the parent's number until CPython's own child handler has run.
  if (kLayout.native_thread_id != 0 && !g_python.forked.load(std::memory_order_relaxed) &&
      load_at<std::uint64_t>(state, kLayout.native_thread_id) != static_cast<std::uint64_t>(raw_syscall(SYS_gettid)))
    return false;
  return is_of_type(innermost.code, g_python.code_type) &&
         is_of_type(load_at<const void*>(innermost.code, kLayout.code_file), g_python.unicode_type);
}

template <PythonLayout kLayout>
PythonWalk walk(std::span<WalkedPythonFrame> frames) noexcept {
  const std::byte* state = current_state<kLayout>();
  if (state == nullptr || frames.empty()) return {};
  Collector collector(frames);
  PythonWalk result;
  if constexpr (kLayout.family <= FrameFamily::objects_cframe)
    result = walk_objects<kLayout>(state, collector);
  else if constexpr (kLayout.family == FrameFamily::entry_flag)
    result = walk_entry_flag<kLayout>(state, collector);
  else
    result = walk_boundary<kLayout>(state, collector);
  if (result.count != 0 && !g_python.verified.load(std::memory_order_relaxed)) {
    if (!is_plausible<kLayout>(state, frames[0])) {
      python_switch_off("its frames do not look as expected");
      return {};
    }
    g_python.verified.store(true, std::memory_order_relaxed);
  }
  return result;
}

}  // namespace

PythonWalk walk_python(std::span<WalkedPythonFrame> frames, Access access) noexcept {
  if (!g_python.usable.load(std::memory_order_acquire) || access == Access::probed) return {};
  // While the interpreter is taken down, other threads' states are freed under them.
  if (g_python.is_finalizing() != 0) return {};
  switch (g_python.row) {
    case 0:
      return walk<kPythonLayouts[0]>(frames);
    case 1:
      return walk<kPythonLayouts[1]>(frames);
    case 2:
      return walk<kPythonLayouts[2]>(frames);
    case 3:
      return walk<kPythonLayouts[3]>(frames);
    case 4:
      return walk<kPythonLayouts[4]>(frames);
    case 5:
      return walk<kPythonLayouts[5]>(frames);
    case 6:
      return walk<kPythonLayouts[6]>(frames);
    case 7:
      return walk<kPythonLayouts[7]>(frames);
    default:
      return {};
  }
}

}  // namespace whyrss::shim
