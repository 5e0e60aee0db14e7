#include "report/verdicts/import_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "model/python_path.h"
#include "model/thread_starts.h"
#include "report/verdicts/growth_parts.h"
#include "report/view/blame.h"
#include "report/view/blame_sums.h"
#include "report/view/line_text.h"
#include "report/view/verdict_thresholds.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// multiprocessing runs the main module anew in a spawned process.
bool is_main_runner(const Frame& frame) { return frame.file == "<frozen runpy>" || frame.file.ends_with("/runpy.py"); }
bool is_of_workers(const Frame& frame) { return contains(frame.file, "/multiprocessing/"); }

// "torch" of .../site-packages/torch/utils/data.py, "job" of .../job.py.
std::string module_name(const StackTable& stacks, const Frame& frame) {
  std::string path(top_package(frame.file, stacks.program_code().package_folders));
  if (path.ends_with('/')) path.pop_back();
  if (path.empty()) path = frame.file;
  if (path.ends_with("/__init__.py")) path.resize(path.size() - std::string_view("/__init__.py").size());
  const std::string name = base_name(path);
  return name.ends_with(".py") ? name.substr(0, name.size() - 3) : name;
}

// The outermost import of a stack in a worker: what was imported, and the line of the user's that asked for it.
struct Import {
  std::string module, line;  // "" = not known
  friend auto operator<=>(const Import&, const Import&) = default;
};

std::optional<Import> import_of(const StackTable& stacks, StackId stack) {
  Import import;
  bool imports = false, asked = false, in_worker = false, has_begun = false;
  const Frame* inner = nullptr;  // the last frame seen that is neither
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (is_thread_frame(frame) && !is_waiter_frame(frame)) break;
    if (frame.kind != FrameKind::python || is_import_helper(frame)) continue;
    if (is_of_workers(frame)) {
      in_worker = true;
      has_begun = has_begun || begins_process(frame);
    } else if (has_begun && (is_importer(frame) || is_main_runner(frame))) {
      continue;  // a fork goes on with the stack of its parent
    } else if (is_importer(frame) || is_main_runner(frame)) {
      const bool main_again = is_main_runner(frame);
      // Of an import within the main module that is run again the line is known already.
      if (!main_again || !imports) import = {inner == nullptr ? "" : module_name(stacks, *inner), ""};
      if (main_again && inner != nullptr && import.line.empty()) import.line = code_line(stacks, inner);
      imports = true;
      asked = main_again;
    } else {
      if (imports && !asked) import.line = code_line(stacks, &frame);
      asked = true;
      inner = &frame;
    }
  }
  return imports && in_worker ? std::optional(import) : std::nullopt;
}

// Processes of one program share most of their stacks.
class ImportMemo {
 public:
  explicit ImportMemo(const StackTable& stacks) : stacks_(stacks) {}
  const std::optional<Import>& operator[](StackId stack) {
    const auto [known, is_new] = imports_.try_emplace(stack);
    if (is_new) known->second = import_of(stacks_, stack);
    return known->second;
  }

 private:
  const StackTable& stacks_;
  std::unordered_map<StackId, std::optional<Import>> imports_;
};

// What a process has to itself of what imports made, also of what the allocator keeps after them.
std::map<Import, std::int64_t> imports_of(const StackTable& stacks, const ProcessView& process, ImportMemo& import_at) {
  std::map<Import, std::int64_t> imports;
  for (const CauseView& cause : process.causes) {
    if (!can_be_of_imports(cause.cause) && cause.cause != Cause::heap_retained) continue;
    for (const SiteView& site : cause.sites)
      if (site.exclusive > 0)
        if (const auto& import =
                import_at[site.stack == kEmptyStack ? importing_stack(stacks, cause.cause, site) : site.stack])
          imports[*import] += site.exclusive;
  }
  return imports;
}

struct Worker {
  const ProcessView* process = nullptr;
  std::map<Import, std::int64_t> imports;
  std::int64_t bytes = 0;  // of imports that another worker made too
};

// Leaves what at least two workers made, and the workers with enough of it to speak of.
void keep_repeated(std::vector<Worker>& workers) {
  std::map<Import, int> count;
  for (const Worker& worker : workers)
    for (const auto& [import, bytes] : worker.imports) ++count[import];
  for (Worker& worker : workers) {
    std::erase_if(worker.imports, [&](const auto& entry) { return count.at(entry.first) < 2; });
    for (const auto& [import, bytes] : worker.imports) worker.bytes += bytes;
  }
  std::erase_if(workers, [](const Worker& worker) { return !is_worth_naming(worker.bytes, *worker.process); });
}

std::string import_text(const Import& import) {
  if (import.module.empty()) return import.line.empty() ? "" : "imported at " + import.line;
  return import.line.empty() ? import.module : fmt::format("{}, imported at {}", import.module, import.line);
}

const char* remedy(const Worker& worker) {
  const auto& command = worker.process->account->command;
  const auto names = [&](std::string_view part) {
    return std::ranges::any_of(command, [&](const std::string& word) { return contains(word, part); });
  };
  if (names("externals.loky"))
    return "joblib's workers are new interpreters, whatever the start method. Let fewer of them work (n_jobs), or "
           "threads of one process, where the work releases the GIL: joblib.parallel_config(backend=\"threading\").";
  const bool forkserver = names("multiprocessing.forkserver");
  if (worker.process->account->born_by_fork && !forkserver)
    return "Import it before the workers are forked: then they share it.";
  return "Use the start method forkserver and name the modules in set_forkserver_preload([...]), or fork: then they "
         "are imported once, and shared. Where the main module itself is run again, keep its work under "
         "if __name__ == \"__main__\".";
}

Verdict verdict_of(std::optional<int> parent, const std::vector<Worker>& workers) {
  Verdict verdict{.id = "per-process-import", .severity = Severity::warning, .pid = parent};
  std::map<Import, std::int64_t> sums;
  auto list = nlohmann::ordered_json::array();
  for (const Worker& worker : workers) {
    verdict.bytes += worker.bytes;
    verdict.covered_pids.push_back(worker.process->account->pid);
    list.push_back({{"pid", worker.process->account->pid}, {"imported_bytes", worker.bytes}});
    for (const auto& [import, bytes] : worker.imports) sums[import] += bytes;
  }
  std::vector<std::pair<Import, std::int64_t>> imports(sums.begin(), sums.end());
  std::ranges::stable_sort(imports, [](const auto& a, const auto& b) { return a.second > b.second; });
  const std::string top = import_text(imports.front().first);
  const std::int64_t top_bytes = imports.front().second;
  const std::string most =
      dominates(top_bytes, verdict.bytes) ? "" : std::string(most_or_largest(top_bytes, verdict.bytes)) + " ";
  const auto count = static_cast<std::int64_t>(workers.size());
  verdict.headline = fmt::format("{} workers import the same modules each for itself{}: {} each, {} together", count,
                                 top.empty() ? "" : fmt::format(" ({}{})", most, top), size_text(verdict.bytes / count),
                                 size_text(verdict.bytes));
  verdict.why =
      "What importing builds (code, classes, tables) is made anew in each process that imports after its start, and no "
      "page of it is shared.";
  verdict.advice = remedy(workers.front());
  verdict.evidence["imported_bytes"] = verdict.bytes;
  verdict.evidence["workers"] = std::move(list);
  auto modules = nlohmann::ordered_json::array();
  for (const auto& [import, bytes] : imports)
    if (modules.size() < kEvidenceEntries)
      modules.push_back({{"module", import.module}, {"imported_at", import.line}, {"bytes", bytes}});
  verdict.evidence["modules"] = std::move(modules);
  return verdict;
}

}  // namespace

void import_cost(const View& view, std::vector<Verdict>& verdicts) {
  const StackTable& stacks = view.recording->stacks;
  for (const ProcessView& process : view.processes) {
    if (!process.account->python) continue;
    std::map<std::string, std::int64_t> sums;
    std::int64_t growth = 0;
    for (const CauseView& cause : process.causes) {
      if (import_growth(stacks, cause) == 0) continue;
      for (const SiteView& site : cause.sites)
        if (const StackId stack = importing_stack(stacks, cause.cause, site); stack != kEmptyStack) {
          const Frame& frame = *imported_frame(stacks, stack);
          sums[is_importer(frame) ? "" : module_name(stacks, frame)] += site.growth;
          growth += site.growth;
        }
    }
    if (!is_worth_naming(growth, process)) continue;
    std::vector<std::pair<std::string, std::int64_t>> modules(sums.begin(), sums.end());
    std::erase_if(modules, [](const auto& module) { return module.first.empty() || module.second <= 0; });
    std::ranges::stable_sort(modules, [](const auto& a, const auto& b) { return a.second > b.second; });
    Verdict verdict{.id = "imports", .severity = Severity::ok, .pid = process.account->pid, .bytes = growth};
    verdict.headline = size_text(growth) + " by imports";
    if (!modules.empty() && dominates(modules.front().second, growth))
      verdict.headline += " of " + printable(modules.front().first);
    else if (!modules.empty())
      verdict.headline += fmt::format(", {} by {} ({})", modules.front().second * 2 > growth ? "most" : "the most",
                                      printable(modules.front().first), size_text(modules.front().second));
    verdict.why =
        "Code objects, classes and tables that modules build while they are imported, and what their libraries set up. "
        "The code of the libraries themselves is counted apart.";
    verdict.advice =
        "Import less if it is too much: only those submodules that are used, where the package allows it, or within "
        "the "
        "function that needs it. Workers that are forked after the import share it.";
    auto list = nlohmann::ordered_json::array();
    for (const auto& [module, bytes] : modules)
      if (list.size() < kEvidenceEntries) list.push_back({{"module", module}, {"bytes", bytes}});
    verdict.evidence["import_bytes"] = growth;
    verdict.evidence["modules"] = std::move(list);
    verdicts.push_back(std::move(verdict));
  }
}

void per_process_import(const View& view, std::vector<Verdict>& verdicts) {
  std::map<std::optional<int>, std::vector<Worker>> by_parent;
  ImportMemo import_at(view.recording->stacks);
  for (const ProcessView& process : view.processes) {
    if (!process.account->python) continue;
    Worker worker{.process = &process, .imports = imports_of(view.recording->stacks, process, import_at)};
    if (!worker.imports.empty()) by_parent[process.account->parent].push_back(std::move(worker));
  }
  for (auto& [parent, workers] : by_parent) {
    keep_repeated(workers);
    if (workers.size() >= 2) verdicts.push_back(verdict_of(parent, workers));
  }
}

}  // namespace whyrss
