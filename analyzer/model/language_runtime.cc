#include "model/language_runtime.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace whyrss {
namespace {

enum Runtime : std::uint8_t { go, java, node, perl, php, ruby };
constexpr std::size_t kRuntimes = 6;

constexpr std::array<LanguageRuntime, kRuntimes> kKnown{{
    {"Go's runtime", "Go",
     "A heap profile shows which lines hold it (runtime/pprof or net/http/pprof, then `go tool pprof "
     "-sample_index=inuse_space`); GOMEMLIMIT limits its heap.",
     false},
    {"the Java virtual machine", "Java",
     "`jcmd PID GC.class_histogram` shows what its heap holds, `jcmd PID VM.native_memory` what else it takes (java "
     "-XX:NativeMemoryTracking=summary); -Xmx limits its heap.",
     false},
    {"Node.js", "JavaScript",
     "A heap snapshot shows which objects are held (node --heapsnapshot-signal=SIGUSR2, or --inspect); "
     "--max-old-space-size limits its heap.",
     false},
    {"Perl's interpreter", "Perl", "Devel::MAT shows which values are held, Devel::Size how large one is.", true},
    {"PHP's engine", "PHP", "memory_get_usage() between the steps of the program shows which of them it grows in.",
     true},
    {"Ruby's interpreter", "Ruby",
     "ObjectSpace.dump_all shows which objects are held, and the lines that made them (require \"objspace\", "
     "ObjectSpace.trace_object_allocations_start).",
     true},
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

}  // namespace

const LanguageRuntime* language_runtime(const StackTable& stacks, const Frame& frame) {
  if (frame.kind != FrameKind::native) return nullptr;
  if (frame.function == "x_cgo_mmap" || frame.function.starts_with("runtime.")) return &kKnown[go];
  const std::string_view path = stacks[frame.module].path;
  const std::string_view module = path.substr(path.rfind('/') + 1);
  if (module == "libjvm.so") return &kKnown[java];
  if (is_called(module, "perl")) return &kKnown[perl];
  if (is_called(module, "php")) return &kKnown[php];
  if (is_called(module, "ruby")) return &kKnown[ruby];
  // Other programs are called node too.
  const bool is_v8 = frame.function.find("v8::") != std::string::npos ||
                     frame.function.find("node::") != std::string::npos ||
                     frame.function.find("heap::base::") != std::string::npos;
  return is_v8 && is_called(module, "node") ? &kKnown[node] : nullptr;
}

const LanguageRuntime& go_runtime() { return kKnown[go]; }

}  // namespace whyrss
