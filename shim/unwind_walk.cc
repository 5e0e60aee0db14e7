#include "shim/unwind_walk.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <atomic>
#include <bit>
#include <cstddef>

#include "shim/observe.h"
#include "shim/own_memory.h"
#include "shim/raw_io.h"
#include "shim/stack_bounds.h"
#include "shim/unwind_rules.h"

namespace whyrss::shim {
namespace {

// 32 K return addresses (a large program uses some 10 K), 512 KiB, touched as used.
constexpr std::size_t kSlots = 32 * 1024;
constexpr std::size_t kProbes = 8;

// Insert-only. The key is taken first, then the rule is published: a key whose rule still reads as
// `none` is a miss.
struct CacheSlot {
  std::atomic<std::uint64_t> key;
  std::atomic<std::uint64_t> rule;
};
static_assert(sizeof(CacheSlot) == 16);

constinit CacheSlot* g_cache = nullptr;

// A frame that a signal interrupted is looked up at its own address, not at the call before it: rules
// of the two are kept apart by this bit (user addresses have it clear).
constexpr std::uint64_t kExact = std::uint64_t{1} << 63;

UnwindRule cached_rule(std::uint64_t ip, bool exact) noexcept {
  const std::uint64_t key = exact ? ip | kExact : ip;
  const std::uint64_t pc = exact ? ip : ip - 1;
  if (g_cache == nullptr) return find_unwind_rule(pc);
  const std::uint64_t hash = (key * 0x9e3779b97f4a7c15ULL) >> 49;
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    CacheSlot& slot = g_cache[(hash + probe) % kSlots];
    std::uint64_t found = slot.key.load(std::memory_order_acquire);
    if (found == key) {
      const std::uint64_t rule = slot.rule.load(std::memory_order_acquire);
      return rule != 0 ? std::bit_cast<UnwindRule>(rule) : find_unwind_rule(pc);
    }
    if (found != 0) continue;
    const UnwindRule rule = find_unwind_rule(pc);
    if (slot.key.compare_exchange_strong(found, key, std::memory_order_acq_rel))
      slot.rule.store(std::bit_cast<std::uint64_t>(rule), std::memory_order_release);
    return rule;
  }
  return find_unwind_rule(pc);
}

std::uint64_t load(std::uint64_t address) noexcept { return *reinterpret_cast<const std::uint64_t*>(address); }

struct Registers {
  std::uint64_t ip, sp, bp;
  bool exact;  // ip is the interrupted instruction, not a return address
};

enum class Step : std::uint8_t { ok, end, lost };

Step step(Registers& registers, StackBounds& stack) noexcept {
  const UnwindRule rule = cached_rule(registers.ip, registers.exact);
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
    case RuleKind::signal_frame: {
      const auto* context = reinterpret_cast<const ucontext_t*>(registers.sp);
      constexpr std::uint64_t kLastWord = offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]);
      if (!readable(registers.sp) || !readable(registers.sp + kLastWord)) return Step::lost;
      registers.ip = static_cast<std::uint64_t>(context->uc_mcontext.gregs[REG_RIP]);
      registers.sp = static_cast<std::uint64_t>(context->uc_mcontext.gregs[REG_RSP]);
      registers.bp = static_cast<std::uint64_t>(context->uc_mcontext.gregs[REG_RBP]);
      registers.exact = true;
      stack.enter(registers.sp);  // a handler may run on a stack of its own
      return registers.ip == 0 ? Step::end : Step::ok;
    }
    case RuleKind::none:
    case RuleKind::complex:
      return Step::lost;
  }
  if (cfa <= registers.sp || !readable(cfa - 8)) return Step::lost;
  if (rule.rbp_offset == kRbpAtItself) {
    if (!readable(registers.bp)) return Step::lost;
    registers.bp = load(registers.bp);
  } else if (rule.rbp_offset != 0) {
    const std::uint64_t place = cfa + static_cast<std::uint64_t>(std::int64_t{rule.rbp_offset});
    if (!readable(place)) return Step::lost;
    registers.bp = load(place);
  }
  registers.ip = load(cfa - 8);
  registers.sp = cfa;
  registers.exact = false;
  return registers.ip == 0 ? Step::end : Step::ok;
}

}  // namespace

void start_unwind_walk() noexcept {
  start_unwind_rules();
  start_stack_bounds();
  void* memory = map_own(kSlots * sizeof(CacheSlot));
  if (memory == nullptr) return;
  report_own_memory(thread_state(), memory, kSlots * sizeof(CacheSlot));
  g_cache = static_cast<CacheSlot*>(memory);
}

void forget_unwind_rules() noexcept {
  if (g_cache != nullptr) raw_syscall(SYS_madvise, as_long(g_cache), kSlots * sizeof(CacheSlot), MADV_DONTNEED);
}

NativeWalk walk_native(const Caller& caller, StackScratch& scratch) noexcept {
  NativeWalk walk;
  Registers registers{.ip = caller.ip, .sp = caller.sp, .bp = caller.bp, .exact = caller.interrupted};
  StackBounds stack(scratch.known_stack);
  stack.enter(registers.sp);
  while (true) {
    if (walk.count == scratch.native_ip.size()) {
      walk.truncated = true;
      return walk;
    }
    scratch.native_ip[walk.count] = registers.ip;
    scratch.native_sp[walk.count] = registers.sp;
    ++walk.count;
    const Step result = step(registers, stack);
    if (result == Step::end) return walk;
    walk.incomplete = result == Step::lost;
    if (walk.incomplete) return walk;
  }
}

}  // namespace whyrss::shim
