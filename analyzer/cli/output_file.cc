#include "cli/output_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "cli/complain.h"
#include "cli/interruption.h"

namespace whyrss {
namespace {

int cannot_write(const std::string& name, int why) {
  return complain(fmt::format("cannot write {}: {}", name, std::strerror(why)));
}

struct Target {
  std::FILE* file = nullptr;
  std::string path{}, temporary{};  // its name in the end, and meanwhile; "": it has its own from the start
};

// A regular file, or one that is to be made, is seen as a whole or not at all. Others, such as pipes, and what cannot
// be replaced are written to.
Target open_target(const std::string& output) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::weakly_canonical(output, error);
  struct stat old {};
  const bool is_there = stat(output.c_str(), &old) == 0;
  const bool is_replaceable = !is_there || (S_ISREG(old.st_mode) && old.st_nlink == 1 && old.st_uid == geteuid() &&
                                            access(output.c_str(), W_OK) == 0);
  if (error || !is_replaceable) return {.file = std::fopen(output.c_str(), "we")};
  Target target{.path = real, .temporary = fmt::format("{}.whyrss-{}", real.string(), getpid())};
  remove_when_interrupted(target.temporary);
  target.file = std::fopen(target.temporary.c_str(), "wxe");
  if (target.file == nullptr) {
    remove_when_interrupted("");
    return {.file = std::fopen(output.c_str(), "we")};
  }
  if (is_there) static_cast<void>(fchmod(fileno(target.file), old.st_mode & 07777));
  return target;
}

// 0, or why it could not get its name.
int settle(const Target& target, int why) {
  if (why == 0 && std::rename(target.temporary.c_str(), target.path.c_str()) != 0) why = errno;
  if (why != 0) unlink(target.temporary.c_str());
  remove_when_interrupted("");
  return why;
}

}  // namespace

int write_checked_output(const std::function<Status(const TextSink&)>& render, const std::string& output,
                         const std::string& what) {
  const bool to_file = !output.empty() && output != "-";
  Target target = to_file ? open_target(output) : Target{.file = stdout};
  if (target.file == nullptr) return cannot_write(output, errno);
  int why = 0;
  const Status rendered = render([&](std::string_view text) {
    if (why == 0 && std::fwrite(text.data(), 1, text.size(), target.file) != text.size()) why = errno;
  });
  if (std::fflush(target.file) != 0 && why == 0) why = errno;
  if (to_file && std::fclose(target.file) != 0 && why == 0) why = errno;
  constexpr int kNotRendered = ECANCELED;  // only so that the file does not get its name
  if (!rendered && why == 0) why = kNotRendered;
  if (!target.temporary.empty()) why = settle(target, why);
  if (!rendered) return complain(rendered.error());
  return why == 0 ? 0 : cannot_write(to_file ? output : what, why);
}

int write_output(const std::function<void(const TextSink&)>& render, const std::string& output,
                 const std::string& what) {
  const auto always = [&](const TextSink& write) -> Status {
    render(write);
    return Done{};
  };
  return write_checked_output(always, output, what);
}

int write_output(const std::string& text, const std::string& output, const std::string& what) {
  return write_output([&](const TextSink& write) { write(text); }, output, what);
}

}  // namespace whyrss
