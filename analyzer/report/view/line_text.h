// How a verdict speaks about the lines behind a figure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/view/blame_sums.h"
#include "report/view/view.h"

namespace whyrss {

// One file is named alone when it makes up this share of the growth, one line likewise.
bool dominates(std::int64_t part, std::int64_t whole);

// One line or kind stands for the whole of it.
bool is_nearly_all(std::int64_t part, std::int64_t whole);

// "most of it" of the largest part where it is that, else "the largest".
const char* most_or_largest(std::int64_t part, std::int64_t whole);

std::vector<const SiteView*> pointers(const std::vector<SiteView>& sites);

// The first entry that names a line and is more than sampling noise; nullptr for none. Growth without a recorded line
// stands under "".
const LineGrowth* top_named(const std::vector<LineGrowth>& lines);

// Whether more than half of `whole` has no recorded line: then no line should be named alone.
bool mostly_unseen(const std::vector<LineGrowth>& lines, std::int64_t whole);

// Where memory of a line was made: "at a.py:3 in f", "in f (libx.so)", "by a thread that a.py:3 in f started", "while
// a.py:3 in f ran" of other threads, whose stacks have no line of the program.
std::string placed_text(const LineGrowth& line);
// " Its function was called at a.c:9 in load for 200 MiB, at a.c:12 in log for 48 MiB."; "" where one line has nearly
// all.
std::string callers_text(const LineGrowth& line);
// What a table says of that behind the line: ", by a thread that it started", ", by other threads while it ran", or "".
const char* done_by_text(const LineGrowth& line);
inline constexpr const char* kDoneMeanwhile = ", by other threads while it ran";
// What the line has to do with it, as the end of a sentence: "; the line is where it was asked for".
const char* asked_text(const LineGrowth& line);

// What kept_where() names, the lines of a runtime as one; nothing where none has enough of `whole` to be worth it.
std::optional<LineGrowth> named_line(const std::vector<LineGrowth>& lines, std::int64_t whole);

// " (made at a.py:3 in f)", with its figure where that has an error: " (made at a.py:3 in f: 9.0 MiB ± 4 %)"; " (most
// made at a.py:3 in f: 9.0 MiB)" where others have more than next to nothing of it, " (3.0 MiB of it made at a.py:3 in
// f)" for less than half, each with up to two more lines that have a fifth too, " (no line has more than 3.0 MiB of
// it)", or "" where no call is known. With `other_verb` also the line of the other kind, where one stands out: "
// (mapped at a.py:3 in f, read at a.py:9 in g)". A line of Python is followed by the native one that asked for nearly
// all of its memory, where that is known: " (made at a.py:3 in f, by a.c:7 in g)". Where the line's threads, or others
// while it ran, made a good part: ", 80 MiB of it by a thread that it started".
std::string kept_where(const std::vector<LineGrowth>& lines, std::int64_t whole, const char* verb,
                       const char* other_verb = nullptr);

// Whether the line that kept_where() names first is followed by a native one.
bool names_native_line(const std::vector<LineGrowth>& lines);

// What to say where more than half of `whole` came pickled from another process (growths of sites of the heap); null:
// it did not.
struct ReceivedText {
  const char *why, *advice;
};
const ReceivedText* mostly_received(const StackTable& stacks, const std::vector<SiteView>& sites, std::int64_t whole);

// What made memory of a cause resident: read, written, touched ... Of lazy_free, what is to make it go.
const char* touch_verb(Cause cause);
// The same of one file: what a process maps so that writes go to it need not have been read.
const char* touch_verb(const RecordingAccount& recording, Cause cause, const std::string& mapping);
// ", read at a.py:9 in g" where a line names the one that touched most of it, else "". "mostly" unless nearly all.
std::string touched_where(const LineGrowth& line, const char* verb);

// Mappings and lines listed as evidence: enough to act on.
inline constexpr std::size_t kEvidenceEntries = 5;
nlohmann::ordered_json line_evidence(const std::vector<LineGrowth>& lines);

}  // namespace whyrss
