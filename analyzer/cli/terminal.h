// What the reader's terminal can show.
#pragma once

#include <cstddef>
#include <string>

namespace whyrss {

// A terminal, and not a dumb one.
bool takes_escapes(int fd);

bool wants_colour(int fd);

// Of a line of text, at most: as COLUMNS says, else the terminal; 100 where neither does.
std::size_t text_columns(int fd);

// Of that terminal; 0: it is none, or does not say.
std::size_t terminal_rows(int fd);

// Of what write_output() writes: to stdout, or to a file, which anybody may read.
std::size_t output_columns(const std::string& output);

// One line of an answer to stdout, broken as it has to be: `first` before it, `rest` before what goes on below. Text
// with a word that fits no line stays as it is, as a path is to be copied.
void print_wrapped(const std::string& text, const std::string& first = "  ", const std::string& rest = "    ");

}  // namespace whyrss
