// How memory of one cause moved within an interval: what a figure of its two ends cannot tell.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/view/blame_sums.h"
#include "report/view/view.h"

namespace whyrss {

struct Trend {
  enum class Kind {
    unknown,  // too few walks, or none of the others
    flat,     // grew, and then stayed as it was
    waves,    // came and went, more than once
    growing,  // grew to the end
  };
  Kind kind = Kind::unknown;
  double since_s = 0;  // flat, growing: from when on
  // flat: by so much it had grown evenly until then; 0: it had not.
  std::int64_t climbed_bytes = 0;
  int falls = 0;      // waves: how often it went
  double from_s = 0;  // of the interval, as far as the process lived
  double span_s = 0;  // the time judged: from there, or from after the imports of a short program, to the end
  // growing: who did since since_s, largest first. Else: who grew evenly to the end, each since a time of its own,
  // while the rest went, or came and went.
  std::vector<LineGrowth> lines;
  // Of all that is growing, or else of the first of the lines.
  double bytes_per_s = 0;  // at the end; 0: nothing grew to the end
  std::int64_t bytes = 0;  // in all
  bool evenly = false;     // through most of the interval
  bool leak_like = false;  // evenly, for longer than loading data takes, and much, into new memory
  // It only fills blocks or mappings that were there since then, of which so much is not touched yet: it ends there.
  struct Filling {
    double since_s = 0;
    std::int64_t left_bytes = 0;
  };
  std::optional<Filling> filling{};
};

// In the process's own interval.
Trend trend_of(const StackTable& stacks, const ProcessView& process, const CauseView& cause);

// ", flat since 3.2 s", for the end of a headline about `named` lines; "" for unknown.
std::string trend_text(const Trend& trend, const std::vector<LineGrowth>& named);
// Where growth ends by itself, as advice; "" where it does not.
std::string filling_text(const Trend& trend);
nlohmann::ordered_json trend_evidence(const Trend& trend);

// The line to blame for what still grows, where one stands out.
const LineGrowth* growing_line(const Trend& trend);
// Where none does: those that have half of it together, the largest first. Empty where it takes more than three.
std::vector<LineGrowth> growing_lines(const Trend& trend);
// "at a.py:7, at a.py:9 and at b.py:2".
std::string enumerated(const std::vector<LineGrowth>& lines, std::string (*text_of)(const LineGrowth&));

}  // namespace whyrss
