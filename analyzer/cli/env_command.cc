#include "cli/env_command.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "cli/complain.h"
#include "cli/output_file.h"

namespace whyrss {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace

std::string env_lines(const std::string& shim_path, const std::string& output, const std::string& options) {
  std::string lines = "export LD_PRELOAD=" + quoted(shim_path) + "\"${LD_PRELOAD:+:$LD_PRELOAD}\"\n";
  lines += "export WHYRSS_OUTPUT=" + quoted(output) + "\n";
  if (!options.empty()) lines += "export WHYRSS_OPTS=" + quoted(options) + "\n";
  return lines;
}

int run_env(const EnvOptions& options) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path shim = (self.parent_path().parent_path() / "lib" / "libwhyrss.so").lexically_normal();
  if (error || !fs::exists(shim, error))
    return complain(shim.string() + " is missing: install whyrss with its library");
  const std::string wanted = options.output.empty() ? "whyrss-%h-%p" : options.output;
  const fs::path output = fs::absolute(wanted, error).lexically_normal();
  const std::string lines = env_lines(shim.string(), error ? wanted : output.string(), options.options);
  return write_output(lines, "", "the lines");
}

}  // namespace whyrss
