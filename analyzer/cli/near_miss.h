// What the user may have meant by words that name no program, or no recording.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace whyrss {

// The candidate that `word` becomes by at most two letters added, left out, changed, or swapped with the next; "" where
// none is so near, or the word is too short to tell.
std::string nearest_word(std::string_view word, std::span<const std::string_view> candidates);

// That no running process can be attached to, and what can be done instead. `target`: its id, or "PID".
std::string cannot_attach(const std::string& target);

// A line for a number that names a living process where a recording or a program is expected; "" for all else.
std::string process_hint(const std::string& text);

// A line for `whyrss COMMAND...` of which no program can be run: a misspelt verb, a recording, a process. "" where it
// is none of these.
std::string command_hint(const std::vector<std::string>& command);

}  // namespace whyrss
