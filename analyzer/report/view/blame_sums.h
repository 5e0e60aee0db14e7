// Growth added up by the line that is to blame: what headlines and the list of top lines are made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/view/view.h"

namespace whyrss {

struct LineGrowth {
  std::string line;  // as code_line, with the folder where another file has its name; "" where no call is known
  std::string file;  // full path of the line's file, "" if not known
  int number = 0;
  std::string_view runtime{};  // whose functions say nothing to who runs a program: "Go's runtime"; "" where they do
  std::int64_t bytes = 0;
  double variance = 0;  // of `bytes`
  // Of `bytes`, in code that is not the program's: of other threads while the line ran, of threads and of processes
  // that it started.
  std::int64_t meanwhile_bytes = 0, thread_bytes = 0, process_bytes = 0;
  // The line of the other kind that most of it goes with, if one does and it is not the same: for the line that mapped
  // or allocated the memory the one that touched it, and the other way round; of lazy_free the one that gave it up.
  std::string other_line{};
  std::int64_t other_bytes = 0;  // that go with it
  bool other_meanwhile = false;  // most of them: of other threads while that line ran
  // The native line by which a line of Python got most of it (native_line_frame); "" where none did.
  std::string native_line{};
  std::int64_t native_bytes = 0;  // that came by it
  // The lines of the program's own that called its function, largest first: the innermost of several that share it.
  struct Caller {
    std::string line;
    std::int64_t bytes = 0;
  };
  std::vector<Caller> callers{};
};

// The standard error of an estimate in percent; 0 where the bytes are exact.
double error_percent(std::int64_t bytes, double variance);
// " ± 4 %" where the standard error is worth telling, else "".
std::string error_text(std::int64_t bytes, double variance);
// Whether an estimate is more than noise: over two standard errors.
bool is_significant(std::int64_t bytes, double variance);

// Largest first; lines whose growth is not positive are left out.
std::vector<LineGrowth> growth_by_line(const StackTable& stacks, const std::vector<const SiteView*>& sites);
// The same by the lines that made the memory resident. Those of the kernel's faults are lines of calls.
std::vector<LineGrowth> growth_by_touch(const StackTable& stacks, const std::vector<const SiteView*>& sites);
// The same by the calls that gave it up with MADV_FREE, of sites of lazy_free.
std::vector<LineGrowth> growth_by_advice(const StackTable& stacks, const std::vector<const SiteView*>& sites);

struct MappingGrowth {
  std::string mapping;
  std::int64_t bytes = 0;
  std::vector<const SiteView*> sites;
};
std::vector<MappingGrowth> growth_by_mapping(const std::vector<SiteView>& sites);

// Live blocks and what lies free beside them, private pages. What an allocator keeps after an import is its own.
bool can_be_of_imports(Cause cause);
// The stack of the import that made a site's memory of this cause (imported_frame): the one that mapped or allocated
// it, or, where no call did, as the data of a library, the one that made most of it resident. Empty: no import did, or
// other code filled most of what it had only mapped, as the arena of a library's allocator.
StackId importing_stack(const StackTable& stacks, Cause cause, const SiteView& site);

std::int64_t sum_growth(const std::vector<const SiteView*>& sites);

}  // namespace whyrss
