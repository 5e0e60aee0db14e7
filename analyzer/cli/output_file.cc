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

int write_output(const std::function<void(const TextSink&)>& render, const std::string& output,
                 const std::string& what) {
  const bool to_file = !output.empty() && output != "-";
  std::FILE* file = to_file ? std::fopen(output.c_str(), "we") : stdout;
  if (file == nullptr) return cannot_write(output, errno);
  int why = 0;
  render([&](std::string_view text) {
    if (why == 0 && std::fwrite(text.data(), 1, text.size(), file) != text.size()) why = errno;
  });
  if (std::fflush(file) != 0 && why == 0) why = errno;
  if (to_file && std::fclose(file) != 0 && why == 0) why = errno;
  return why == 0 ? 0 : cannot_write(to_file ? output : what, why);
}

int write_output(const std::string& text, const std::string& output, const std::string& what) {
  return write_output([&](const TextSink& write) { write(text); }, output, what);
}

}  // namespace whyrss
