#include "report/call_chains.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "report/blame.h"
#include "report/blame_sums.h"
#include "report/format.h"

namespace whyrss {
namespace {

// Callers of less than this part of a line are left out, those beyond so many at one place are counted.
constexpr double kLeastPart = 0.02;
constexpr std::size_t kMostCallers = 5;
constexpr std::size_t kMostDepth = 60;  // lines printed below one another

// One line of code, what it is to blame for, and from where it was called. Bytes of callers sum to at most its own.
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
  Cause cause = Cause::unknown;
  int pid = 0;
  double variance = 0;
  std::vector<const SiteView*> sites;
};

bool starts_the_program(const Frame& frame) {
  static constexpr std::array<std::string_view, 6> kNames{
      "_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3"};
  return frame.kind == FrameKind::native && std::ranges::find(kNames, frame.function) != kNames.end();
}

// From the blamed frame outwards.
void add_callers(const StackTable& stacks, StackId stack, std::int64_t bytes, Caller& root) {
  const Frame* blamed = blamed_frame(stacks, stack);
  Caller* inner = nullptr;
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (inner == nullptr) {
      if (&frame == blamed) inner = &root;
      continue;
    }
    const std::string line = code_line(stacks, &frame);
    if (line.empty() || starts_the_program(frame)) continue;
    inner = &inner->called_from(line);
    inner->bytes += bytes;
  }
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
  for (BlamedLine& line : lines)
    for (const SiteView* site : line.sites) add_callers(stacks, site->stack, site->growth, line.root);
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
    if (callers.size() == 1 && left_out == 0) return print_chain(*callers.front(), indent, depth, "");
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
