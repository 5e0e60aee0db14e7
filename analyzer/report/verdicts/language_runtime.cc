#include "report/verdicts/language_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "report/view/blame.h"

namespace whyrss {
namespace {

enum Runtime : std::uint8_t { go, java, node, perl, php, ruby };
constexpr std::size_t kRuntimes = 6;

constexpr std::array<LanguageRuntime, kRuntimes> kKnown{{
    {"Go's runtime", "Go",
     "A heap profile shows which lines hold it (runtime/pprof or net/http/pprof, then `go tool pprof "
     "-sample_index=inuse_space`); GOMEMLIMIT limits its heap."},
    {"The Java virtual machine", "Java",
     "`jcmd PID GC.class_histogram` shows what its heap holds, `jcmd PID VM.native_memory` what else it takes (java "
     "-XX:NativeMemoryTracking=summary); -Xmx limits its heap."},
    {"Node.js", "JavaScript",
     "A heap snapshot shows which objects are held (node --heapsnapshot-signal=SIGUSR2, or --inspect); "
     "--max-old-space-size limits its heap."},
    {"Perl's interpreter", "Perl", "Devel::MAT shows which values are held, Devel::Size how large one is."},
    {"PHP's engine", "PHP", "memory_get_usage() between the steps of the program shows which of them it grows in."},
    {"Ruby's interpreter", "Ruby",
     "ObjectSpace.dump_all shows which objects are held, and the lines that made them (require \"objspace\", "
     "ObjectSpace.trace_object_allocations_start)."},
}};

// "php", "php8.2", "libruby-3.1.so.3.1" of php and ruby; not "libperlin.so" of perl.
bool is_called(std::string_view module, std::string_view name) {
  constexpr std::string_view kVersion = ".-0123456789";
  const bool is_library = module.starts_with("lib") && module.find(".so") != std::string_view::npos;
  if (is_library) module.remove_prefix(3);
  if (!module.starts_with(name)) return false;
  const std::string_view rest = module.substr(name.size());
  return is_library ? kVersion.find(rest.front()) != std::string_view::npos
                    : rest.find_first_not_of(kVersion) == std::string_view::npos;
}

const LanguageRuntime* runtime_of(const StackTable& stacks, StackId stack) {
  const Frame* frame = blamed_frame(stacks, stack);
  if (frame == nullptr || frame->kind != FrameKind::native) return nullptr;
  if (frame->function == "x_cgo_mmap" || frame->function.starts_with("runtime.")) return &kKnown[go];
  const std::string module = base_name(stacks[frame->module].path);
  if (module == "libjvm.so") return &kKnown[java];
  if (is_called(module, "perl")) return &kKnown[perl];
  if (is_called(module, "php")) return &kKnown[php];
  if (is_called(module, "ruby")) return &kKnown[ruby];
  // Other programs are called node too.
  const bool is_v8 = frame->function.find("v8::") != std::string::npos ||
                     frame->function.find("node::") != std::string::npos ||
                     frame->function.find("heap::base::") != std::string::npos;
  return is_v8 && is_called(module, "node") ? &kKnown[node] : nullptr;
}

}  // namespace

const LanguageRuntime* runtime_behind(const StackTable& stacks, const std::vector<SiteView>& sites,
                                      std::int64_t whole) {
  std::array<std::int64_t, kRuntimes> bytes{};
  for (const SiteView& site : sites)
    if (const LanguageRuntime* runtime = runtime_of(stacks, site.stack))
      bytes.at(static_cast<std::size_t>(runtime - kKnown.data())) += site.growth;
  const auto most = std::ranges::max_element(bytes);
  return 2 * *most > whole ? &kKnown.at(static_cast<std::size_t>(most - bytes.begin())) : nullptr;
}

const LanguageRuntime& go_runtime() { return kKnown[go]; }

std::string runtime_sentence(const LanguageRuntime& runtime) {
  return fmt::format(" {} asked for it: which line of {} it was for is not recorded.", runtime.name, runtime.language);
}

void explain_runtime(Verdict& verdict, const StackTable& stacks, const std::vector<SiteView>& sites, std::int64_t whole,
                     std::string_view condition) {
  const LanguageRuntime* runtime = runtime_behind(stacks, sites, whole);
  if (runtime == nullptr) return;
  verdict.why += runtime_sentence(*runtime);
  verdict.advice = fmt::format("{}{}", condition, runtime->advice);
}

}  // namespace whyrss
