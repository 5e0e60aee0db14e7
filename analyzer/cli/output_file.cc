#include "cli/output_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/complain.h"

namespace whyrss {
namespace {

int cannot_write(const std::string& name, int why) {
  return complain(fmt::format("cannot write {}: {}", name, std::strerror(why)));
}

}  // namespace

int write_output(const std::string& text, const std::string& output, const std::string& what) {
  const bool to_file = !output.empty() && output != "-";
  std::FILE* file = to_file ? std::fopen(output.c_str(), "we") : stdout;
  if (file == nullptr) return cannot_write(output, errno);
  bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  good = std::fflush(file) == 0 && good;
  const int why = errno;
  if (to_file) good = std::fclose(file) == 0 && good;
  return good ? 0 : cannot_write(to_file ? output : what, why);
}

}  // namespace whyrss
