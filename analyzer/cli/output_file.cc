#include "cli/output_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "report/format.h"

namespace whyrss {
namespace {

int complain(const std::string& name, int why) {
  const std::string message = fmt::format("cannot write {}: {}", name, std::strerror(why));
  std::fprintf(stderr, "whyrss: %s\n", printable(message).c_str());
  return 1;
}

}  // namespace

int write_output(const std::string& text, const std::string& output, const std::string& what) {
  const bool to_file = !output.empty() && output != "-";
  std::FILE* file = to_file ? std::fopen(output.c_str(), "we") : stdout;
  if (file == nullptr) return complain(output, errno);
  bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  good = std::fflush(file) == 0 && good;
  const int why = errno;
  if (to_file) good = std::fclose(file) == 0 && good;
  return good ? 0 : complain(to_file ? output : what, why);
}

}  // namespace whyrss
