#include "report/verdicts/language_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include "report/view/blame.h"

namespace whyrss {

const LanguageRuntime* runtime_behind(const StackTable& stacks, const std::vector<SiteView>& sites,
                                      std::int64_t whole) {
  std::map<const LanguageRuntime*, std::int64_t> sums;
  for (const SiteView& site : sites) {
    const Frame* frame = blamed_frame(stacks, site.stack);
    const LanguageRuntime* runtime = frame == nullptr ? nullptr : language_runtime(stacks, *frame);
    if (runtime != nullptr) sums[runtime] += site.growth;
  }
  for (const auto& [runtime, bytes] : sums)
    if (2 * bytes > whole) return runtime;
  return nullptr;
}

std::string runtime_sentence(const LanguageRuntime& runtime) {
  std::string name(runtime.name);
  name.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(name.front())));
  return fmt::format(" {} asked for it: which line of {} it was for is not recorded.", name, runtime.language);
}

void explain_runtime(Verdict& verdict, const StackTable& stacks, const std::vector<SiteView>& sites, std::int64_t whole,
                     std::string_view condition) {
  const LanguageRuntime* runtime = runtime_behind(stacks, sites, whole);
  if (runtime == nullptr) return;
  verdict.why += runtime_sentence(*runtime);
  verdict.advice = fmt::format("{}{}", condition, runtime->advice);
}

}  // namespace whyrss
