// Who held, at a moment, what the kernel cannot take back: by cause and line, over all processes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/view/view.h"

namespace whyrss {

struct Holder {
  Cause cause = Cause::unknown;
  std::string line{};      // "" where no call is known, or its figure is within two standard errors of zero; of shared
                           // memory that no process maps, those words and who made it
  std::int64_t bytes = 0;  // over all processes
  double variance = 0;     // of `bytes`, at most
  int pid = 0;             // the one with the most of it
  std::int64_t pid_bytes = 0;
  std::size_t process_count = 0;
  bool imports = false;   // all that imports made, of any cause (can_be_of_imports); no line
  bool unmapped = false;  // shared memory that no process maps
};

// At the end of the view, of processes that lived until then, or were killed shortly before a killed main process was
// gone; largest first. Shared memory counts once.
std::vector<Holder> holders_at_end(const View& view);
// What grew in the view, likewise.
std::vector<Holder> holders_by_growth(const View& view);

// "59 MiB ± 4 % live heap (a.py:4 in f)", "163 MiB by imports"
std::string holder_text(const Holder& holder);
// Of holders, largest first, the first that is not of imports, unless it has less than `least_bytes`. Null: none has so
// much.
const Holder* main_holder(const std::vector<Holder>& holders, std::int64_t least_bytes = 0);
// "59 MiB live heap (a.py:4 in f), beside 163 MiB by imports" for main_holder() and imports that hold more.
std::string main_holder_text(const std::vector<Holder>& holders, const Holder& main);
nlohmann::ordered_json holder_evidence(const std::vector<Holder>& holders);

}  // namespace whyrss
