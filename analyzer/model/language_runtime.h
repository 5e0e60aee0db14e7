// Interpreters and virtual machines: the recorded lines are their own, not those of the program that they run.
#pragma once

#include <string_view>

#include "model/stack_table.h"

namespace whyrss {

struct LanguageRuntime {
  std::string_view name;              // "the Java virtual machine"
  std::string_view language;          // "Java"
  std::string_view advice;            // a sentence: what shows the program's own objects
  bool has_telling_functions = true;  // those that allocate say what for: a string, a hash
};

// Whose code a native frame is; null: of none that is known. CPython is none of them: its lines are recorded.
const LanguageRuntime* language_runtime(const StackTable& stacks, const Frame& frame);

const LanguageRuntime& go_runtime();

}  // namespace whyrss
