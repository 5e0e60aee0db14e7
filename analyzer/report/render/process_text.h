// How a report speaks about a process, and which processes it passes over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/verdicts/verdict.h"
#include "report/view/view.h"

namespace whyrss {

// "python quickstart.py": the program by its base name, then its arguments, printable.
std::string command_text(const std::vector<std::string>& command);

// "python quickstart.py (pid 17)"
std::string name_with_pid(const ProcessAccount& account);

// "python quickstart.py (pid 17)   RSS +661 MiB in 12 s = 531 live + 72 library code + 58 imports": above its verdicts.
std::string head_line(const RecordingAccount& recording, const ProcessView& process);

// What a process has of its own while it is there.
struct OwnBytes {
  double from_s = 0, to_s = 0;
  std::int64_t bytes = 0;
};
OwnBytes own_bytes(const View& view, const ProcessView& process, std::int64_t bytes);
// Of many processes that come one after the other each has its own, and all together never had the sum.
std::int64_t most_at_a_time(const std::vector<OwnBytes>& all);
std::int64_t sum_of(const std::vector<OwnBytes>& all);

// A process that gets a block of its own in the answer, and those of the same program and script of whose verdicts the
// same is to be said but for figures: they are named below it, with what else their command lines say.
struct ProcessSection {
  const ProcessView* process = nullptr;
  std::vector<const ProcessView*> alike{};
  // Of each of those: which of its sentences do not hold, from 1 on, never the first one; and whether those that do say
  // of a growth that it is ", flat since 3.2 s" and it is not known of this one.
  struct Difference {
    std::vector<std::size_t> sentences{};
    bool flat = false;
  };
  std::vector<Difference> without{};
};

// Those with a verdict, in the order of their first ones. Of which nothing but remarks is to be said has none, unless
// it is the main process. Never empty unless the view is.
std::vector<ProcessSection> process_sections(const View& view, const std::vector<Verdict>& verdicts);

// "The same holds for 2 more processes like it: pid 12 (RSS +65 MiB), pid 13 (+64 MiB, but for the 2nd sentence and
// "flat since")", "" for none; "pid 12 (b.csv, RSS +65 MiB)" where that one works on another file. Those that were not
// all there together: "like it, one at a time", "like it, at most 3 at a time". "The same holds, with other figures,
// for 1 more process like it: pid 12 (RSS +65 MiB, 400 MiB at its peak)" where that differs by more than a quarter.
std::string alike_text(const View& view, const ProcessSection& sections);

// "4 more processes with verdicts of their own (whyrss report --top 9 shows all): python3 a.py (pid 12): RSS +20 MiB,
// ..." of the blocks from `first` on, which are not shown.
std::string left_out_text(const std::vector<ProcessSection>& sections, std::size_t first);

// The block in which this process is named, by itself or as one of those alike; nullptr: none.
const ProcessSection* section_of(const std::vector<ProcessSection>& sections, std::optional<int> pid);

// Whether a verdict is not to be shown: of a process without a block a remark, or it is said of another process.
bool is_passed_over(const std::vector<ProcessSection>& sections, const Verdict& verdict);

// "2 more processes (sh, python): +18 MiB of their own together", "" for none. Leaves out those that a
// verdict covers.
std::string rest_text(const View& view, const std::vector<ProcessSection>& sections,
                      const std::vector<Verdict>& verdicts);

}  // namespace whyrss
