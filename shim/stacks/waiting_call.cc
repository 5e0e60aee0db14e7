#include "shim/stacks/waiting_call.h"

#include <sys/syscall.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "shim/stacks/python_frames.h"
#include "shim/stacks/unwind_rules.h"
#include "shim/sys/copied_memory.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

// Beginnings of file names.
constexpr std::array<std::string_view, 11> kSharedByAll{"libc.so", "libc-",    "ld-",       "libpthread",
                                                        "libdl",   "libm.so",  "libm-",     "libstdc++.",
                                                        "libc++.", "libgcc_s", "linux-vdso"};
constexpr std::array<std::string_view, 8> kJoining{"libgomp.", "libgomp-", "libomp.", "libomp-",
                                                   "libomp5.", "libiomp5", "libtbb.", "libtbb-"};

template <std::size_t kCount>
bool is_one_of(const std::array<std::string_view, kCount>& names, std::string_view path) noexcept {
  if (const std::size_t slash = path.rfind('/'); slash != std::string_view::npos) path.remove_prefix(slash + 1);
  return std::ranges::any_of(names, [&](std::string_view name) { return path.starts_with(name); });
}

std::uint64_t start_of_image(std::uint64_t address) noexcept { return find_image(address).start; }

// Of struct pthread in every glibc for x86-64 (nptl/descr.h): the number that the kernel has given the thread, 0 when
// it has ended.
constexpr std::size_t kThreadNumber = 0x2d0;

bool has_known_layout() noexcept {
  return *reinterpret_cast<const std::int32_t*>(own_thread() + kThreadNumber) == own_syscall(SYS_gettid);
}

struct BlockedAt {
  std::uint64_t ip, sp;  // ip as in WalkedFrame
  std::uint64_t bp;      // 0: not known, the kernel does not say it
};

// Where it is blocked; sp 0: it runs, or the kernel does not say it.
BlockedAt find_blocked(std::uint32_t number) noexcept {
  std::array<char, 64> path{};
  constexpr std::string_view kBefore = "/proc/self/task/", kAfter = "/syscall";
  char* at = std::ranges::copy(kBefore, path.begin()).out;
  at = std::to_chars(at, path.end(), number).ptr;
  std::ranges::copy(kAfter, at);
  std::array<char, 256> text;
  // The call's number and six arguments, or -1, then the stack pointer and the instruction; or "running".
  std::string_view rest = read_file(path.data(), text);
  std::array<std::uint64_t, 2> last{};
  for (std::uint64_t& value : last) {
    const std::size_t digits = rest.rfind("0x");
    if (digits == std::string_view::npos) return {};
    std::from_chars(rest.data() + digits + 2, rest.data() + rest.size(), value, 16);
    rest.remove_suffix(rest.size() - digits);
  }
  return {.ip = last[0] + 1, .sp = last[1], .bp = 0};
}

// Whether code of an image ends a call there: E8 and a distance, or FF /2 with what it needs.
bool is_return_address(std::uint64_t address, long own_pid) noexcept {
  if (start_of_image(address - 1) == 0) return false;
  std::array<std::uint8_t, 7> before{};
  const iovec target{before.data(), before.size()};
  const iovec source{reinterpret_cast<void*>(address - before.size()), before.size()};
  if (copy_foreign(own_pid, {&target, 1}, {&source, 1}) != before.size()) return false;
  if (before[2] == 0xe8) return true;
  for (std::size_t i = 0; i + 1 < before.size(); ++i)
    if (before[i] == 0xff && (before[i + 1] & 0x38) == 0x10) return true;
  return false;
}

// Follows frames of a thread that is blocked.
class ForeignStack {
 public:
  explicit ForeignStack(long own_pid) noexcept : own_pid_(own_pid) {}

  // To the caller's frame. False: it cannot be found.
  bool step(BlockedAt& at, UnwindRule rule) const noexcept {
    return at.bp != 0 || !needs_bp(rule) ? step_by_known(at, rule) : step_by_search(at, rule);
  }

 private:
  static constexpr std::size_t kChunkWords = 64, kChunks = 4;

  static bool needs_bp(UnwindRule rule) noexcept {
    return rule.kind == RuleKind::cfa_rbp || rule.kind == RuleKind::deref_rbp || rule.rbp_offset == kRbpAtItself;
  }

  bool load(std::uint64_t address, std::uint64_t& into) const noexcept { return load(address, into, address, into); }
  bool load(std::uint64_t address, std::uint64_t& into, std::uint64_t other, std::uint64_t& other_into) const noexcept {
    if (((address | other) & 7) != 0) return false;
    const std::array<iovec, 2> targets{{{&into, sizeof into}, {&other_into, sizeof other_into}}};
    const std::array<iovec, 2> sources{
        {{reinterpret_cast<void*>(address), sizeof into}, {reinterpret_cast<void*>(other), sizeof other_into}}};
    const std::size_t count = address == other ? 1 : 2;
    return copy_foreign(own_pid_, std::span(targets).first(count), std::span(sources).first(count)) ==
           count * sizeof into;
  }

  bool step_by_known(BlockedAt& at, UnwindRule rule) const noexcept {
    const bool by_bp = rule.kind == RuleKind::cfa_rbp || rule.kind == RuleKind::deref_rbp;
    if (needs_bp(rule) && at.bp == 0) return false;
    std::uint64_t cfa = (by_bp ? at.bp : at.sp) + static_cast<std::uint64_t>(std::int64_t{rule.offset});
    if (rule.kind == RuleKind::deref_rsp || rule.kind == RuleKind::deref_rbp) {
      if (!load(cfa, cfa)) return false;
      cfa += static_cast<std::uint64_t>(std::int64_t{rule.addend});
    } else if (rule.kind != RuleKind::cfa_rsp && rule.kind != RuleKind::cfa_rbp) {
      return false;
    }
    if (cfa <= at.sp) return false;
    const std::uint64_t return_place = cfa - sizeof cfa;
    std::uint64_t bp_place = return_place;
    if (rule.rbp_offset != 0)
      bp_place =
          rule.rbp_offset == kRbpAtItself ? at.bp : cfa + static_cast<std::uint64_t>(std::int64_t{rule.rbp_offset});
    std::uint64_t bp = 0;
    if (!load(return_place, at.ip, bp_place, bp)) return false;
    if (rule.rbp_offset != 0) at.bp = bp;
    at.sp = cfa;
    return true;
  }

  // Where no frame further in has saved RBP: the nearest return address that leads on as one should.
  bool step_by_search(BlockedAt& at, UnwindRule rule) const noexcept {
    if (rule.kind != RuleKind::cfa_rbp) return false;
    std::array<std::uint64_t, kChunkWords> words{};
    for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
      const std::uint64_t begin = at.sp + chunk * sizeof words;
      const iovec target{words.data(), sizeof words};
      const iovec source{reinterpret_cast<void*>(begin), sizeof words};
      const std::size_t count = copy_foreign(own_pid_, {&target, 1}, {&source, 1}) / sizeof words[0];
      for (std::size_t i = 0; i < count; ++i) {
        if (!is_return_address(words[i], own_pid_)) continue;
        const std::uint64_t cfa = begin + (i + 1) * sizeof words[0];
        BlockedAt found = at;
        found.bp = cfa - static_cast<std::uint64_t>(std::int64_t{rule.offset});
        if (found.bp < at.sp || !step_by_known(found, rule)) continue;
        BlockedAt next = found;
        const UnwindRule next_rule = find_unwind_rule(found.ip - 1);
        if (next_rule.kind != RuleKind::end &&
            (!step_by_known(next, next_rule) || !is_return_address(next.ip, own_pid_)))
          continue;
        at = found;
        return true;
      }
    }
    return false;
  }

  long own_pid_;
};

constexpr std::size_t kMostFrames = 64;

}  // namespace

void StackLibraries::take(const StackMemo& stack) noexcept {
  count_ = 0;
  is_joined_ = false;
  const std::uint64_t own = start_of_image(reinterpret_cast<std::uint64_t>(&waits_in));
  const std::uint64_t interpreter = start_of_image(python_eval_range().start);
  Range last{};
  for (std::size_t i = stack.first(); i < StackMemo::kEnd && count_ < kMost; ++i) {
    const std::uint64_t address = stack.frame(i).ip - 1;
    if (last.holds(address) || hold(address)) continue;
    const LoadedImage image = find_image(address);
    last = {image.start, image.end};
    if (image.start == 0 || image.start == own || image.start == interpreter) continue;
    const std::string_view path = image.path != nullptr ? image.path : "";
    const bool is_joining = is_one_of(kJoining, path);
    is_joined_ |= is_joining;
    if (!is_joining && !is_one_of(kSharedByAll, path)) ranges_[count_++] = last;
  }
}

bool StackLibraries::hold(std::uint64_t address) const noexcept {
  return std::ranges::any_of(std::span(ranges_).first(count_),
                             [&](const Range& range) { return range.holds(address); });
}

WaitsThere waits_in(const StackLibraries& libraries, std::uintptr_t thread, long own_pid) noexcept {
  if (libraries.empty() || !has_known_layout()) return WaitsThere::unknown;
  std::uint32_t number = 0;
  const iovec target{&number, sizeof number};
  const iovec source{reinterpret_cast<void*>(thread + kThreadNumber), sizeof number};
  if (copy_foreign(own_pid, {&target, 1}, {&source, 1}) != sizeof number || number == 0) return WaitsThere::no;
  BlockedAt at = find_blocked(number);
  const CodeHold code;
  if (at.sp == 0 || !code) return WaitsThere::unknown;
  const EvalRange eval = python_eval_range();
  const ForeignStack stack(own_pid);
  for (std::size_t i = 0; i < kMostFrames; ++i) {
    const std::uint64_t address = at.ip - 1;
    if (libraries.hold(address)) return WaitsThere::yes;
    if (address - eval.start < eval.end - eval.start) return WaitsThere::no;
    const UnwindRule rule = find_unwind_rule(address);
    if (rule.kind == RuleKind::end) return WaitsThere::no;
    if (!stack.step(at, rule)) return WaitsThere::unknown;
    if (at.ip == 0) return WaitsThere::no;
  }
  return WaitsThere::unknown;
}

}  // namespace whyrss::shim
