#include "report/view/call_chains.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "report/view/blame.h"
#include "report/view/blame_sums.h"
#include "report/view/native_code.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

// Callers of less than this part of a line are left out, those beyond so many at one place are counted.
constexpr double kLeastPart = 0.02;
constexpr std::size_t kMostCallers = 5;
constexpr std::size_t kMostDepth = 60;  // lines printed below one another

// One line of code, what it is to blame for, and from where it was called; or, inside of a blamed line, what it called.
// Bytes of callers sum to at most its own.
struct Caller {
  std::string line;
  std::int64_t bytes = 0;
  std::vector<Caller> callers;

  Caller& called_from(const std::string& from) {
    const auto found = std::ranges::find(callers, from, &Caller::line);
    if (found != callers.end()) return *found;
    callers.push_back({.line = from, .bytes = 0, .callers = {}});
    return callers.back();
  }
};

struct BlamedLine {
  Caller root;
  Caller inside{};  // with the same line and bytes
  Cause cause = Cause::unknown;
  int pid = 0;
  double variance = 0;
  std::vector<const SiteView*> sites;
};

// C++'s or Rust's, also what lies in libstdc++ itself.
bool is_language(const StackTable& stacks, const Frame& frame) {
  if (frame.kind != FrameKind::native) return false;
  const NativeCode code = native_code(frame, stacks[frame.module].path);
  return code == NativeCode::language || (code == NativeCode::runtime && frame.function.starts_with("std::"));
}

// Allocators, start-up, the interpreter around Python's code, and how an import is done.
bool reports_nothing(const StackTable& stacks, const Frame& frame) {
  if (frame.kind == FrameKind::python) return frame.file.starts_with("<frozen importlib");
  const std::string& module = stacks[frame.module].path;
  return native_code(frame, module) >= NativeCode::allocator || is_python_interpreter(module);
}

// Its callers from the blamed frame outwards, and what it called from there inwards. Of functions of C++'s or Rust's
// library that call each other the outermost is enough.
void add_stack(const StackTable& stacks, const SiteView& site, BlamedLine& line) {
  const std::vector<FrameId>& stack = stacks[site.stack];
  const Frame* blamed = blamed_frame(stacks, site.stack);
  const auto place = std::ranges::find_if(stack, [&](FrameId id) { return &stacks[id] == blamed; });
  const auto add = [&](Caller*& below, std::size_t at) {
    const Frame& frame = stacks[stack[at]];
    const Frame* caller = at + 1 < stack.size() ? &stacks[stack[at + 1]] : nullptr;
    const bool repeats = is_language(stacks, frame) && caller != nullptr &&
                         (is_language(stacks, *caller) || starts_program(caller->function));
    const std::string name = code_line(stacks, &frame);
    if (name.empty() || repeats || reports_nothing(stacks, frame)) return;
    below = &below->called_from(name);
    below->bytes += site.growth;
  };
  if (place == stack.end()) return;
  const auto blamed_at = static_cast<std::size_t>(place - stack.begin());
  Caller *outer = &line.root, *inner = &line.inside;
  for (std::size_t at = blamed_at + 1; at < stack.size(); ++at) add(outer, at);
  for (std::size_t at = blamed_at; at > 0; --at) add(inner, at - 1);
}

void add_lines(const StackTable& stacks, const ProcessView& process, const CauseView& cause,
               std::vector<BlamedLine>& lines) {
  std::unordered_map<std::string, std::size_t> places;
  for (const SiteView& site : cause.sites) {
    const std::string line = blamed_line(stacks, site.stack);
    if (line.empty()) continue;
    const auto [place, is_new] = places.try_emplace(line, lines.size());
    if (is_new)
      lines.push_back({.root = {.line = line, .bytes = 0, .callers = {}},
                       .inside = {},
                       .cause = cause.cause,
                       .pid = process.account->pid,
                       .variance = 0,
                       .sites = {}});
    BlamedLine& known = lines[place->second];
    known.root.bytes += site.growth;
    known.variance += site.variance;
    known.sites.push_back(&site);
  }
}

std::vector<BlamedLine> blamed_lines(const View& view, std::size_t top) {
  const StackTable& stacks = view.recording->stacks;
  std::vector<BlamedLine> lines;
  for (const ProcessView& process : view.processes)
    for (const CauseView& cause : process.causes)
      if (cause.cause != Cause::fork_shared) add_lines(stacks, process, cause, lines);  // which costs nothing
  std::erase_if(lines, [](const BlamedLine& line) {
    return line.root.bytes <= 0 || !is_significant(line.root.bytes, line.variance);
  });
  std::ranges::stable_sort(lines, std::ranges::greater{}, [](const BlamedLine& line) { return line.root.bytes; });
  if (lines.size() > top) lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(top), lines.end());
  for (BlamedLine& line : lines) {
    line.inside.bytes = line.root.bytes;
    for (const SiteView* site : line.sites) add_stack(stacks, *site, line);
  }
  return lines;
}

class ChainPrinter {
 public:
  explicit ChainPrinter(std::vector<std::string>& out) : out_(out) {}

  void print(const BlamedLine& line) {
    out_.push_back(fmt::format("{} MiB{}  {}, {} (pid {})", mib(line.root.bytes),
                               error_text(line.root.bytes, line.variance), info(line.cause).title,
                               printable(line.root.line), line.pid));
    least_bytes_ = static_cast<std::int64_t>(kLeastPart * static_cast<double>(line.root.bytes));
    print_callers(line.root, 2, kMostDepth);
    if (line.inside.callers.empty()) return;
    const std::size_t before = out_.size();
    out_.emplace_back("  inside of it:");
    print_callers(line.inside, 4, kMostDepth);
    if (out_.size() == before + 1) out_.pop_back();  // next to nothing each
  }

 private:
  void print_callers(const Caller& of, std::size_t indent, std::size_t depth) {
    std::vector<const Caller*> callers;
    for (const Caller& caller : of.callers)
      if (caller.bytes > least_bytes_) callers.push_back(&caller);
    std::ranges::stable_sort(callers, std::ranges::greater{}, &Caller::bytes);
    const std::size_t left_out = callers.size() - std::min(callers.size(), kMostCallers);
    callers.resize(callers.size() - left_out);
    if (callers.empty()) return;
    if (depth == 0) return out_.push_back(std::string(indent, ' ') + "...");
    const bool has_all = of.bytes - callers.front()->bytes <= least_bytes_;  // no other stack goes on or ends here
    if (callers.size() == 1 && left_out == 0 && has_all) return print_chain(*callers.front(), indent, depth, "");
    for (const Caller* caller : callers) print_chain(*caller, indent, depth, mib(caller->bytes) + "  ");
    if (left_out > 0) out_.push_back(fmt::format("{}{} more callers", std::string(indent, ' '), left_out));
  }

  // A function that calls itself at one line is one line.
  void print_chain(const Caller& caller, std::size_t indent, std::size_t depth, const std::string& before) {
    const Caller* outermost = &caller;
    std::size_t times = 1;
    while (outermost->callers.size() == 1 && outermost->callers.front().line == caller.line) {
      outermost = &outermost->callers.front();
      ++times;
    }
    const std::string repeated = times > 1 ? fmt::format(", {} times", times) : "";
    out_.push_back(fmt::format("{}{}{}{}", std::string(indent, ' '), before, printable(caller.line), repeated));
    print_callers(*outermost, indent + before.size(), depth - 1);
  }

  std::vector<std::string>& out_;
  std::int64_t least_bytes_ = 0;
};

}  // namespace

std::vector<std::string> call_chain_lines(const View& view, std::size_t top) {
  std::vector<std::string> out;
  ChainPrinter printer(out);
  for (const BlamedLine& line : blamed_lines(view, top)) printer.print(line);
  return out;
}

}  // namespace whyrss
