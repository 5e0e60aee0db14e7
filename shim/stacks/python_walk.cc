// Walks the calling thread's Python frames, or those of another thread while it waits. Inside malloc, mmap and fork
// hooks the interpreter is in C code that called out, and its chain is consistent. Where a signal stopped it, it may be
// in the middle of a frame's push or pop: what is read is then checked, and a chain that does not end as it should is
// said to be torn. In CPython 3.11 and 3.12 that happens within some twenty instructions of a call.
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "shim/stacks/python_access.h"
#include "shim/stacks/python_collector.h"
#include "shim/stacks/python_frames.h"
#include "shim/stacks/python_hops.h"
#include "shim/stacks/python_interpreter.h"
#include "shim/sys/copied_memory.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/readable_page.h"

namespace whyrss::shim {
namespace {

using Flags = trace::PythonFrameFlags;

// Further frames that are followed only to learn the eval call of the last ones that had room.
constexpr std::uint32_t kMaxHops = 1U << 16;
// Where each page of frames is a system call: some 200 of them.
constexpr std::uint32_t kMaxProbedHops = 1U << 13;
constexpr std::int32_t kUnitBytes = 2;
// In a thread state, of all versions.
constexpr std::size_t kThreadPrevious = 0;
// _PyStackRef of 3.14: the low bits are tags; 0 in earlier versions.
constexpr std::uintptr_t kStackRefTags = 3;

// Of a state that may belong to a thread that is just leaving: its memory may go at any moment.
bool is_own_foreign_state(const std::byte* state, std::size_t thread_id_offset) noexcept {
  const std::uint64_t self = own_thread();
  const auto* thread_id = reinterpret_cast<const std::uint32_t*>(state + thread_id_offset);
  return holds_word(thread_id, static_cast<std::uint32_t>(self)) &&
         holds_word(thread_id + 1, static_cast<std::uint32_t>(self >> 32));
}

// This thread's own state is alive and so is its interpreter: both reads are safe.
bool has_subinterpreters(const std::byte* own_state, std::size_t thread_interpreter) noexcept {
  if (g_python.first_interpreter == nullptr || g_python.next_interpreter == nullptr) return true;
  const void* first = g_python.first_interpreter();
  return first != load_at<const void*>(own_state, thread_interpreter) || g_python.next_interpreter(first) != nullptr;
}

// From 3.12 on attaching a state binds it to its thread (tstate_activate in pystate.c): this thread's state
// is the attached one whenever one is attached. Until 3.11 a subinterpreter's is found only by asking for
// the holder of the GIL; both questions are a load and pthread_getspecific.
template <std::size_t kRow, class Reader>
const std::byte* current_state(Reader& reader) noexcept {
  constexpr const PythonLayout& layout = kPythonLayouts[kRow];
  const std::byte* own = g_python.this_thread_state();
  if (own == nullptr) return nullptr;
  if constexpr (layout.family < FrameFamily::cframe_boundary) {
    const std::byte* attached = g_python.attached_state();
    if (attached != own && attached != nullptr && has_subinterpreters(own, layout.thread_interpreter) &&
        is_own_foreign_state(attached, layout.thread_id))
      own = attached;
  }
  return reader.template load<std::uintptr_t>(own, layout.thread_id) == own_thread() ? own : nullptr;
}

bool is_misaligned(const void* frame) noexcept { return (reinterpret_cast<std::uintptr_t>(frame) & 7) != 0; }

// What a frame pointer leads to. In hooks every one leads to a frame.
template <class Reader>
bool may_be_frame(Reader& reader, const void* frame) noexcept {
  if (is_misaligned(frame)) return false;
  return !Reader::kProbed || !reader.failed();
}

// Whether a frame's code is one: in the middle of a push it may be what the memory held before.
template <class Reader>
bool may_be_code(Reader& reader, const void* code) noexcept {
  if (!Reader::kProbed || (Reader::kForeign && is_known_code(code))) return true;
  return is_of_type(reader, code, g_python.code_type);
}

// 3.8 to 3.10: one C eval call per frame.
template <std::size_t kRow, class Reader>
PythonWalk walk_objects(Reader& reader, const std::byte* state, Collector& collector, PythonTrail* known) noexcept {
  constexpr const PythonLayout& layout = kPythonLayouts[kRow];
  constexpr bool kHasCframe = layout.family == FrameFamily::objects_cframe;
  constexpr std::int32_t kInstructionBytes = kHasCframe ? kUnitBytes : 1;  // f_lasti counts units in 3.10
  const auto* frame = reader.template load<const std::byte*>(state, layout.innermost);
  const std::byte* cframe = kHasCframe ? reader.template load<const std::byte*>(state, layout.cframe) : nullptr;
  const std::byte* root = state + layout.root_cframe;
  Trail<kRow, Reader> trail(known, state, nullptr);
  while (frame != nullptr) {
    if (!may_be_frame(reader, frame)) return collector.finish(true);
    if (cframe == root) cframe = nullptr;
    if (const PythonHop* met = trail.meets(frame, cframe, collector); met != nullptr)
      return collector.finish(*met, trail.is_torn());
    const auto* code = reader.template load<const void*>(frame, layout.frame_code);
    const auto last = reader.template load<std::int32_t>(frame, layout.frame_instruction) * kInstructionBytes;
    if (!may_be_code(reader, code)) return collector.finish(true);
    collector.add(code, last, Flags::entry, reinterpret_cast<std::uint64_t>(cframe), false);
    if (collector.is_truncated()) return collector.finish(false);
    trail.pass(frame, cframe, true, cframe != nullptr);
    if (cframe != nullptr) cframe = reader.template load<const std::byte*>(cframe, layout.cframe_previous);
    frame = reader.template load<const std::byte*>(frame, layout.frame_previous);
  }
  return collector.finish_whole(reader.failed());
}

// Free-threaded 3.14 and later: threads run copies of the bytecode, of which the first is the code's own.
template <std::size_t kRow, class Reader>
std::uintptr_t bytecode_copy(Reader& reader, const std::byte* frame, const void* code,
                             std::uintptr_t original) noexcept {
  constexpr const PythonLayout& layout = kPythonLayouts[kRow];
  const auto index = reader.template load<std::int32_t>(frame, layout.frame_copy_index);
  if (index <= 0) return original;
  const auto* copies = reader.template load<const std::byte*>(code, layout.code_thread_copies);
  if (copies == nullptr || index >= reader.template load<std::int64_t>(copies, 0)) return original;
  return reader.template load<std::uintptr_t>(copies, layout.copies_entries + sizeof(void*) * std::size_t(index));
}

// 3.11 and later: one _PyInterpreterFrame. Adds it with its place in the bytecode: the distance of its
// instruction pointer from the code, as traceback takes it (3.11, 3.12: the instruction begun last;
// later: the one that runs). False: it is none.
template <std::size_t kRow, class Reader>
bool add_frame(Reader& reader, const std::byte* frame, std::uint8_t owner, std::uint64_t eval_address,
               Collector& collector) noexcept {
  constexpr const PythonLayout& layout = kPythonLayouts[kRow];
  const auto address = reader.template load<std::uintptr_t>(frame, layout.frame_code) & ~kStackRefTags;
  const auto* code = reinterpret_cast<const void*>(address);
  const auto instruction = reader.template load<std::uintptr_t>(frame, layout.frame_instruction);
  if (!may_be_code(reader, code)) return false;
  std::uintptr_t bytecode = address + layout.code_bytecode;
  if constexpr (layout.frame_copy_index != 0) bytecode = bytecode_copy<kRow>(reader, frame, code, bytecode);
  const auto last = static_cast<std::int32_t>(instruction - bytecode);
  collector.add(code, last, 0, eval_address, owner == kOwnedByGenerator);
  return !reader.failed();
}

template <std::size_t kRow, class Reader>
PythonWalk walk_entry_flag(Reader& reader, const std::byte* state, Collector& collector, PythonTrail* known) noexcept {
  constexpr const PythonLayout& layout = kPythonLayouts[kRow];
  const std::byte* root = state + layout.root_cframe;
  const auto* cframe = reader.template load<const std::byte*>(state, layout.cframe);
  if (cframe == nullptr) return collector.finish(reader.failed());
  const auto* frame = reader.template load<const std::byte*>(cframe, layout.cframe_current);
  if (frame == nullptr) return collector.finish(cframe != root);
  bool bottom_is_generator = false;
  Trail<kRow, Reader> trail(known, state, nullptr);
  while (frame != nullptr) {
    if (!may_be_frame(reader, frame) || cframe == nullptr) return collector.finish(true);
    if (const PythonHop* met = trail.meets(frame, cframe, collector); met != nullptr)
      return collector.finish(*met, trail.is_torn());
    const auto owner = reader.template load<std::uint8_t>(frame, layout.frame_owner);
    const std::uint64_t eval_address = cframe == root ? 0 : reinterpret_cast<std::uint64_t>(cframe);
    if (!add_frame<kRow>(reader, frame, owner, eval_address, collector)) return collector.finish(true);
    if (collector.is_truncated()) return collector.finish(false);
    bottom_is_generator = owner == kOwnedByGenerator;
    const bool is_entry = reader.template load<std::uint8_t>(frame, layout.frame_is_entry) != 0;
    trail.pass(frame, cframe, true, is_entry && cframe != root);
    if (is_entry) {
      collector.end_eval_call(eval_address);
      if (cframe != root) cframe = reader.template load<const std::byte*>(cframe, layout.cframe_previous);
    }
    frame = reader.template load<const std::byte*>(frame, layout.frame_previous);
  }
  // A greenlet's chain ends before the root: complete all the same, but said to be torn.
  return collector.finish_whole(cframe != root || bottom_is_generator || reader.failed());
}

// Of 3.12: _PyEval_EvalFrameDefault links its cframe to the thread before it fills it, and both the cframe and the
// frame of the eval call lie in its own frame. Until they are filled they are what an earlier call left at the same
// place: often a link to the frame of the eval call, which has code as any other, and an owner that was overwritten.
// So that frame is known by its place. Frames with Python code lie in other mappings, and the end of a thread's stack
// holds more than this: its struct pthread. (In gcc's code of 3.12.1 the owner is stored two instructions after the
// link of the cframe, and what the cframe leads to twenty after that.)
bool is_beside(const std::byte* frame, const std::byte* cframe) noexcept {
  constexpr std::uintptr_t kEvalFrameBytes = 2048;
  const auto distance = reinterpret_cast<std::uintptr_t>(frame) - reinterpret_cast<std::uintptr_t>(cframe);
  return distance + kEvalFrameBytes < 2 * kEvalFrameBytes;
}

// 3.12 and later: every C eval call has a frame of its own, on the C stack, without Python code.
template <std::size_t kRow, class Reader>
PythonWalk walk_boundary(Reader& reader, const std::byte* state, Collector& collector, PythonTrail* known) noexcept {
  constexpr const PythonLayout& layout = kPythonLayouts[kRow];
  const std::byte* frame;
  [[maybe_unused]] const std::byte* cframe = nullptr;  // of the innermost eval call
  if constexpr (layout.family == FrameFamily::cframe_boundary) {
    cframe = reader.template load<const std::byte*>(state, layout.cframe);
    if (cframe == nullptr) return collector.finish(reader.failed());
    frame = reader.template load<const std::byte*>(cframe, layout.cframe_current);
    if (frame == nullptr) return collector.finish(cframe != state + layout.root_cframe);
  } else {
    frame = reader.template load<const std::byte*>(state, layout.innermost);
  }
  const std::byte* base =
      layout.base_frame != 0 ? reader.template load<const std::byte*>(state, layout.base_frame) : nullptr;
  // The outermost boundary of 3.15 lies in the thread state, not on the stack.
  const auto end_at = [&](const std::byte* boundary) {
    collector.end_eval_call(boundary != base ? reinterpret_cast<std::uint64_t>(boundary) : 0);
  };
  Trail<kRow, Reader> trail(known, state, base);
  constexpr std::uint32_t kMost = Reader::kProbed ? kMaxProbedHops : kMaxHops;
  for (std::uint32_t hops = 0; frame != nullptr && hops < kMost && !collector.is_done(); ++hops) {
    if (!may_be_frame(reader, frame)) return collector.finish(true);
    if (const PythonHop* met = trail.meets(frame, nullptr, collector); met != nullptr) {
      if (met->is_python)
        collector.join_eval_call(met->eval_address);
      else
        end_at(frame);
      return collector.finish(*met, trail.is_torn());
    }
    const auto owner = reader.template load<std::uint8_t>(frame, layout.frame_owner);
    if (reader.failed()) return collector.finish(true);
    if constexpr (Reader::kProbed && layout.family == FrameFamily::cframe_boundary)
      if (owner < kBoundaryOwner && is_beside(frame, cframe)) return collector.finish(true);
    if (owner < kBoundaryOwner) {
      // Of those beyond the room only where their eval call ends is wanted.
      if (!collector.is_truncated() && !add_frame<kRow>(reader, frame, owner, 0, collector))
        return collector.finish(true);
    } else {
      end_at(frame);
    }
    trail.pass(frame, nullptr, owner < kBoundaryOwner, false);
    frame = reader.template load<const std::byte*>(frame, layout.frame_previous);
  }
  const bool torn = (collector.in_eval_call() && !collector.is_truncated()) || reader.failed();
  return frame == nullptr ? collector.finish_whole(torn) : collector.finish(torn);
}

// Once per process: what the walk reads must agree with what the system and the types say.
template <std::size_t kRow, class Reader>
bool is_plausible(Reader& reader, const std::byte* state, const WalkedPythonFrame& innermost) noexcept {
  constexpr const PythonLayout& layout = kPythonLayouts[kRow];
  // A forked child's state holds the parent's number until CPython's own child handler has run.
  if (layout.native_thread_id != 0 && !g_python.forked.load(std::memory_order_relaxed) &&
      reader.template load<std::uint64_t>(state, layout.native_thread_id) !=
          static_cast<std::uint64_t>(own_syscall(SYS_gettid)))
    return false;
  return is_of_type(reader, innermost.code, g_python.code_type) &&
         is_of_type(reader, reader.template load<const void*>(innermost.code, layout.code_file), g_python.unicode_type);
}

template <std::size_t kRow, class Reader>
PythonWalk walk_of(const std::byte* state, Reader& reader, Collector& collector, PythonTrail* trail) noexcept {
  constexpr const PythonLayout& layout = kPythonLayouts[kRow];
  if constexpr (layout.family <= FrameFamily::objects_cframe)
    return walk_objects<kRow>(reader, state, collector, trail);
  else if constexpr (layout.family == FrameFamily::entry_flag)
    return walk_entry_flag<kRow>(reader, state, collector, trail);
  else
    return walk_boundary<kRow>(reader, state, collector, trail);
}

template <std::size_t kRow, class Reader>
PythonWalk walk(std::span<WalkedPythonFrame> frames, PythonTrail* trail) noexcept {
  Reader reader;
  const std::byte* state = current_state<kRow>(reader);
  if (state == nullptr || frames.empty()) return {};
  Collector collector(frames);
  PythonWalk result = walk_of<kRow>(state, reader, collector, trail);
  result.state = state;
  if (result.count != 0 && !g_python.verified.load(std::memory_order_relaxed)) {
    if (!is_plausible<kRow>(reader, state, frames[0])) {
      // A signal may have come at a bad moment, a hook has not.
      if (!Reader::kProbed) python_switch_off("its frames have another layout than expected");
      return {};
    }
    g_python.verified.store(true, std::memory_order_relaxed);
  }
  return result;
}

// From 3.15 on the question for the thread state is answered from TLS. In a libpython that came by dlopen
// the first touch of it in a thread allocates: never in a signal handler before a hook has asked.
constinit thread_local bool t_has_asked = false;

template <std::size_t kRow>
PythonWalk walk(std::span<WalkedPythonFrame> frames, Access access, PythonTrail* trail) noexcept {
  constexpr const PythonLayout& layout = kPythonLayouts[kRow];
  if (access == Access::direct) {
    if constexpr (layout.minor >= 15) t_has_asked = true;
    return walk<kRow, DirectReader>(frames, trail);
  }
  if (layout.minor >= 15 && !t_has_asked) return {.unknown = true};
  return walk<kRow, ProbedReader>(frames, nullptr);
}

// Whether a state is released now: its thread waits for what it called without the GIL, or for the GIL.
bool is_released(const std::byte* state, CopiedReader& reader) noexcept {
  const PythonLayout& layout = *g_python.layout;
  if (layout.attached_word == 0) return g_python.attached_state() != state;
  return (reader.word_now(state, layout.attached_word) & layout.attached_bits) == 0;
}

template <std::size_t kRow>
std::size_t walk_waiting(const Waiter& waiter, std::span<WalkedPythonFrame> frames, CopiedReader& reader) noexcept {
  constexpr const PythonLayout& layout = kPythonLayouts[kRow];
  if (reader.load<std::uintptr_t>(waiter.state, layout.thread_id) != waiter.thread) return 0;
  Collector collector(frames, false);
  const PythonWalk walk = walk_of<kRow>(waiter.state, reader, collector, nullptr);
  const bool stood_still = is_released(waiter.state, reader) && !reader.failed();
  return stood_still && (!walk.torn || walk.truncated) ? walk.count : 0;
}

bool may_follow_threads() noexcept {
  return g_python.usable.load(std::memory_order_acquire) && g_python.verified.load(std::memory_order_relaxed) &&
         g_python.is_finalizing() == 0;
}

// One per row of the table.
constexpr auto kWaitingWalks = []<std::size_t... kRow>(std::index_sequence<kRow...>) {
  return std::array{&walk_waiting<kRow>...};
}
(std::make_index_sequence<kPythonLayouts.size()>());
constexpr auto kWalks = []<std::size_t... kRow>(std::index_sequence<kRow...>) { return std::array{&walk<kRow>...}; }
(std::make_index_sequence<kPythonLayouts.size()>());

// Its state if it holds the GIL.
const std::byte* attached_own_state() noexcept {
  const std::byte* own = g_python.this_thread_state();
  if (own == nullptr || g_python.attached_state == nullptr) return nullptr;
  const std::byte* attached = g_python.attached_state();
  const bool is_own = attached == own || (attached != nullptr && g_python.layout->minor >= 12);
  return is_own ? attached : nullptr;
}

}  // namespace

bool python_is_collecting() noexcept {
  if (!g_python.usable.load(std::memory_order_acquire) || g_python.collecting == 0) return false;
  if (g_python.is_finalizing() != 0) return false;
  const std::byte* state = attached_own_state();
  if (state == nullptr) return false;
  const PythonLayout& layout = *g_python.layout;
  const auto* collector =
      layout.minor == 8 ? g_python.runtime : load_at<const std::byte*>(state, layout.thread_interpreter);
  const bool is_there = layout.first_generation == 0 ||
                        load_at<const std::byte*>(collector, layout.first_generation) == collector + layout.generations;
  return is_there && load_at<int>(collector, g_python.collecting) == 1;
}

PythonWalk walk_python(std::span<WalkedPythonFrame> frames, Access access, PythonTrail* trail) noexcept {
  if (!g_python.usable.load(std::memory_order_acquire)) return {};
  // While the interpreter is taken down, other threads' states are freed under them.
  if (g_python.is_finalizing() != 0) return {};
  return kWalks[g_python.row](frames, access, trail);
}

Waiter waiter_beside(const Waiter& waiter, Side side, CopiedReader& reader) noexcept {
  if (!may_follow_threads()) return {};
  const PythonLayout& layout = *g_python.layout;
  const auto* interpreter = reader.load<const void*>(waiter.state, layout.thread_interpreter);
  if (reader.load<std::uintptr_t>(waiter.state, layout.thread_id) != waiter.thread) reader.fail();
  const auto* state =
      reader.load<const std::byte*>(waiter.state, side == Side::next ? layout.thread_next : kThreadPrevious);
  if (state == nullptr || reader.failed()) return {};
  const Waiter found{state, reader.load<std::uintptr_t>(state, layout.thread_id)};
  if (reader.load<const void*>(state, layout.thread_interpreter) != interpreter) reader.fail();
  return reader.failed() ? Waiter{} : found;
}

bool is_waiting(const Waiter& waiter, CopiedReader& reader) noexcept {
  return may_follow_threads() && is_released(waiter.state, reader) && !reader.failed();
}

std::size_t walk_waiting(const Waiter& waiter, std::span<WalkedPythonFrame> frames, CopiedReader& reader) noexcept {
  if (!is_waiting(waiter, reader)) return 0;
  reader.renew();
  return kWaitingWalks[g_python.row](waiter, frames, reader);
}

}  // namespace whyrss::shim
