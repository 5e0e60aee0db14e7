#include "shim/stacks/unwind_walk.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>

#include "shim/events/caller.h"
#include "shim/events/own_memory_events.h"
#include "shim/stacks/image_list.h"
#include "shim/stacks/stack_bounds.h"
#include "shim/stacks/stack_scratch.h"
#include "shim/stacks/unwind_rules.h"
#include "shim/sys/own_memory.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

// 32 K return addresses (a large program uses some 10 K), 512 KiB. Short programs have few, which spread over all of it
// would take a page fault each: so its first page comes first, then the first eight.
constexpr unsigned kAllBits = 15;
constexpr std::array<unsigned, 3> kBits{8, 11, kAllBits};
constexpr std::size_t kSlots = std::size_t{1} << kAllBits;
constexpr std::size_t kProbes = 8;

// Insert-only. The key is taken first, then the rule is published: a key whose rule still reads as
// `none` is a miss.
struct CacheSlot {
  std::atomic<std::uint64_t> key;
  std::atomic<std::uint64_t> rule;
};
static_assert(sizeof(CacheSlot) == 16);

constinit CacheSlot* g_cache = nullptr;
// How many bits of a hash are left to tell the slot by. What lies elsewhere since they became more is looked up anew.
constinit std::atomic<std::uint32_t> g_bits{kBits[0]};
constinit std::atomic<std::uint32_t> g_rules{0};  // stored, until all of the cache is used

// Counts up when code may have gone. It is part of the keys: a rule of the code that was, stored late by a
// slow thread, is not found.
constinit std::atomic<std::uint64_t> g_generation{1};
constinit std::atomic<std::uint32_t> g_closing{0};  // dlclose calls that run now

constexpr unsigned kAddressBits = 48;
// The code that a walk begins with, and whether rules of it may be kept.
struct Code {
  std::uint64_t generation;
  std::uint32_t bits;
  bool settled;
};
Code current_code() noexcept {
  const std::uint64_t generation = g_generation.load(std::memory_order_acquire);
  return {.generation = generation,
          .bits = g_bits.load(std::memory_order_relaxed),
          .settled = g_closing.load(std::memory_order_acquire) == 0 && g_cache != nullptr};
}

std::uint64_t hash_of(std::uint64_t key, std::uint32_t bits) noexcept {
  return (key * 0x9e3779b97f4a7c15ULL) >> (64 - bits);
}

void use_more_than(std::uint32_t bits) noexcept {
  for (const unsigned more : kBits)
    if (more > bits) return g_bits.store(more, std::memory_order_relaxed);
}

void count_rule(std::uint32_t bits) noexcept {
  if (bits == kAllBits || g_rules.fetch_add(1, std::memory_order_relaxed) < std::uint32_t{1} << (bits - 1)) return;
  use_more_than(bits);
}

// Rules as words (see WalkedFrame).
std::uint64_t find_rule(std::uint64_t ip) noexcept { return std::bit_cast<std::uint64_t>(find_unwind_rule(ip - 1)); }

// Not found where it belongs: further on, or new.
[[gnu::noinline]] std::uint64_t find_or_cache_rule(std::uint64_t ip, std::uint64_t key, std::uint32_t bits) noexcept {
  const std::uint64_t first = hash_of(key, bits);
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    CacheSlot& slot = g_cache[(first + probe) & mask];
    std::uint64_t found = slot.key.load(std::memory_order_acquire);
    if (found == key) {
      const std::uint64_t rule = slot.rule.load(std::memory_order_acquire);
      return rule != 0 ? rule : find_rule(ip);
    }
    if (found != 0) continue;
    const std::uint64_t rule = find_rule(ip);
    if (slot.key.compare_exchange_strong(found, key, std::memory_order_acq_rel)) {
      slot.rule.store(rule, std::memory_order_release);
      count_rule(bits);
    }
    return rule;
  }
  use_more_than(bits);
  return find_rule(ip);
}

[[gnu::always_inline]] inline std::uint64_t cached_rule(std::uint64_t ip, Code program) noexcept {
  if (!program.settled || ip >> kAddressBits != 0) return find_rule(ip);
  const std::uint64_t key = program.generation << kAddressBits | ip;
  const CacheSlot& slot = g_cache[hash_of(key, program.bits)];
  if (slot.key.load(std::memory_order_acquire) == key) {
    const std::uint64_t rule = slot.rule.load(std::memory_order_acquire);
    if (rule != 0) return rule;
  }
  return find_or_cache_rule(ip, key, program.bits);
}

std::uint64_t load(std::uint64_t address) noexcept { return *reinterpret_cast<const std::uint64_t*>(address); }

struct Registers {
  std::uint64_t ip, sp, bp;  // ip as in WalkedFrame
};

enum class Step : std::uint8_t { ok, end, end_at_zero, no_rule, lost };

Step step_over_signal(Registers& registers, StackBounds& stack) noexcept {
  const auto* context = reinterpret_cast<const ucontext_t*>(registers.sp);
  constexpr std::uint64_t kLastWord = offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]);
  if (!stack.readable(registers.sp) || !stack.readable(registers.sp + kLastWord)) return Step::lost;
  registers.ip = static_cast<std::uint64_t>(context->uc_mcontext.gregs[REG_RIP]);
  registers.sp = static_cast<std::uint64_t>(context->uc_mcontext.gregs[REG_RSP]);
  registers.bp = static_cast<std::uint64_t>(context->uc_mcontext.gregs[REG_RBP]);
  stack.enter(registers.sp);  // a handler may run on a stack of its own
  if (registers.ip == 0) return Step::end;
  ++registers.ip;  // the instruction was interrupted, not called from
  return Step::ok;
}

[[gnu::noinline]] Step step(Registers& registers, std::uint64_t rule_word, StackBounds& stack) noexcept {
  const auto rule = std::bit_cast<UnwindRule>(rule_word);
  const auto readable = [&](std::uint64_t address) { return address >= registers.sp && stack.readable(address); };
  std::uint64_t cfa = 0;
  switch (rule.kind) {
    case RuleKind::end:
      return Step::end;
    case RuleKind::cfa_rsp:
      cfa = registers.sp + static_cast<std::uint64_t>(std::int64_t{rule.offset});
      break;
    case RuleKind::cfa_rbp:
      cfa = registers.bp + static_cast<std::uint64_t>(std::int64_t{rule.offset});
      break;
    case RuleKind::deref_rsp:
    case RuleKind::deref_rbp: {
      const std::uint64_t base = rule.kind == RuleKind::deref_rsp ? registers.sp : registers.bp;
      const std::uint64_t place = base + static_cast<std::uint64_t>(std::int64_t{rule.offset});
      if (!readable(place)) return Step::lost;
      cfa = load(place) + static_cast<std::uint64_t>(std::int64_t{rule.addend});
      break;
    }
    case RuleKind::signal_frame:
      return step_over_signal(registers, stack);
    case RuleKind::none:
    case RuleKind::complex:
      return Step::no_rule;
  }
  if (cfa <= registers.sp || !readable(cfa - 8)) return Step::lost;
  if (rule.rbp_offset == kRbpAtItself) {
    if (!readable(registers.bp)) return Step::lost;
    registers.bp = load(registers.bp);
  } else if (rule.rbp_offset != 0) {
    const std::uint64_t place = cfa + static_cast<std::uint64_t>(std::int64_t{rule.rbp_offset});
    // Below RSP: an epilogue was interrupted that has popped it already.
    if (place >= registers.sp && !readable(place)) return Step::lost;
    if (place >= registers.sp) registers.bp = load(place);
  }
  registers.ip = load(cfa - 8);
  registers.sp = cfa;
  return registers.ip == 0 ? Step::end_at_zero : Step::ok;
}

// Nearly all frames: found by RSP or RBP, the caller's RBP untouched or saved below the return address. False:
// not such a frame, or not known to be readable.
[[gnu::always_inline]] inline bool step_as_usual(Registers& registers, std::uint64_t rule,
                                                 std::uint64_t stack_end) noexcept {
  const auto kind = static_cast<std::uint8_t>(rule);
  const auto bp_offset = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int16_t>(rule >> 16)});
  const auto offset = static_cast<std::uint64_t>(static_cast<std::int64_t>(rule) >> 32);
  const std::uint64_t sp = registers.sp;
  const std::uint64_t cfa = (kind == static_cast<std::uint8_t>(RuleKind::cfa_rbp) ? registers.bp : sp) + offset;
  const std::uint64_t bp_place = cfa + bp_offset;
  static_assert(static_cast<int>(RuleKind::cfa_rsp) == 1 && static_cast<int>(RuleKind::cfa_rbp) == 2);
  if (static_cast<std::uint8_t>(kind - 1) > 1 || cfa <= sp || cfa > stack_end || ((cfa | bp_place) & 7) != 0 ||
      bp_place - sp > cfa - sp)
    return false;
  const std::uint64_t saved_bp = load(bp_offset != 0 ? bp_place : cfa - 8);
  registers.bp = bp_offset != 0 ? saved_bp : registers.bp;
  registers.ip = load(cfa - 8);
  registers.sp = cfa;
  return true;
}
static_assert(offsetof(UnwindRule, kind) == 0 && offsetof(UnwindRule, rbp_offset) == 2 &&
              offsetof(UnwindRule, offset) == 4);

using Ending = StackMemo::Ending;

NativeWalk result_of(const StackMemo& memo) noexcept {
  return {.first = memo.first(),
          .count = StackMemo::kEnd - memo.first(),
          .truncated = memo.cut_off(),
          .incomplete = memo.incomplete()};
}

// The walk itself, until it meets the memo from `candidate` on.
[[gnu::noinline]] NativeWalk walk_on(Registers registers, Code program, std::size_t candidate, StackBounds& stack,
                                     StackScratch& scratch) noexcept {
  StackMemo& memo = scratch.memo;
  auto& passed = scratch.passed;
  std::size_t count = 0;
  for (; count < passed.size(); ++count) {
    if (memo.meets(candidate, count, registers.ip, registers.sp, registers.bp, stack)) {
      memo.remember_inner(candidate, passed.data(), count);
      return result_of(memo);
    }
    const std::uint64_t rule = cached_rule(registers.ip, program);
    passed[count] = {.ip = registers.ip, .sp = registers.sp, .bp = registers.bp, .rule = rule};
    if (step_as_usual(registers, rule, stack.end())) {
      if (registers.ip != 0) continue;
      memo.remember_all(passed.data(), count + 1, Ending::at_zero, registers.sp - 8, false);
      return result_of(memo);
    }
    Registers copy = registers;  // its address is given away, the loop's own stay in registers
    const Step way = step(copy, rule, stack);
    registers = copy;
    if (way == Step::ok) {
      if (std::bit_cast<UnwindRule>(rule).kind == RuleKind::signal_frame) candidate = memo.known();
      continue;
    }
    // What a handler interrupted at address 0, a call of nothing, is a word like others.
    const bool by_rule =
        (way == Step::end && std::bit_cast<UnwindRule>(rule).kind == RuleKind::end) || way == Step::no_rule;
    const Ending ending = way == Step::end_at_zero ? Ending::at_zero : by_rule ? Ending::by_rule : Ending::other;
    memo.remember_all(passed.data(), count + 1, ending, registers.sp - 8, way == Step::no_rule || way == Step::lost);
    return result_of(memo);
  }
  memo.remember_all(passed.data(), count, Ending::cut_off, 0, false);
  return result_of(memo);
}

}  // namespace

void start_unwind_walk() noexcept {
  start_unwind_rules();
  start_stack_bounds();
  void* memory = map_own(kSlots * sizeof(CacheSlot));
  if (memory == nullptr) return;
  report_own_memory(thread_state(), memory, kSlots * sizeof(CacheSlot));
  g_cache = static_cast<CacheSlot*>(memory);
  g_cache[0].rule.store(0, std::memory_order_relaxed);  // a first fault by a read would be followed by one more
}

void begin_code_removal() noexcept {
  begin_rule_removal();
  g_closing.fetch_add(1, std::memory_order_acq_rel);
  g_generation.fetch_add(1, std::memory_order_acq_rel);
}

void end_code_removal(bool removed) noexcept {
  end_rule_removal();
  if (removed) {
    forget_listed_images();
    g_generation.fetch_add(1, std::memory_order_acq_rel);
    if (g_cache != nullptr) empty_own(g_cache, kSlots * sizeof(CacheSlot));
  }
  std::uint32_t running = g_closing.load(std::memory_order_relaxed);
  while (running != 0 && !g_closing.compare_exchange_weak(running, running - 1, std::memory_order_acq_rel)) {
  }
}

bool unwind_walk_after_fork_in_child() noexcept {
  image_list_after_fork_in_child();
  unwind_rules_after_fork_in_child();
  if (g_closing.load(std::memory_order_relaxed) == 0) return false;
  g_closing.store(1, std::memory_order_relaxed);
  end_code_removal(true);
  return true;
}

NativeWalk walk_native(const Caller& caller, StackScratch& scratch) noexcept {
  StackMemo& memo = scratch.memo;
  scratch.same.forget();
  const Code program = current_code();
  const Registers registers{.ip = caller.ip + (caller.interrupted ? 1 : 0), .sp = caller.sp, .bp = caller.bp};
  StackBounds stack(scratch.known_stack);
  stack.enter(registers.sp);
  memo.begin(program.generation, program.settled);
  std::size_t candidate = memo.known();
  if (memo.meets(candidate, 0, registers.ip, registers.sp, registers.bp, stack) && candidate == memo.first()) {
    NativeWalk result = result_of(memo);
    result.again = true;
    result.lasting = stack.is_lasting();
    return result;
  }
  NativeWalk result = walk_on(registers, program, candidate, stack, scratch);
  result.lasting = stack.is_lasting();
  return result;
}

bool has_signal_frame(const StackScratch& scratch) noexcept {
  const Code program = current_code();
  for (std::size_t i = scratch.memo.first(); i < StackMemo::kEnd; ++i)
    if (std::bit_cast<UnwindRule>(cached_rule(scratch.memo.frame(i).ip, program)).kind == RuleKind::signal_frame)
      return true;
  return false;
}

}  // namespace whyrss::shim
