#include "cli/env_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "cli/complain.h"
#include "cli/exit_status.h"
#include "cli/output_file.h"
#include "cli/shell_words.h"

namespace whyrss {
std::string env_lines(const std::string& shim_path, const std::string& output, const std::string& options) {
  std::string lines = "export LD_PRELOAD=" + shell_quoted(shim_path) + "\"${LD_PRELOAD:+:$LD_PRELOAD}\"\n";
  lines += "export WHYRSS_OUTPUT=" + shell_quoted(output) + "\n";
  if (!options.empty()) lines += "export WHYRSS_OPTS=" + shell_quoted(options) + "\n";
  return lines;
}

std::string slurm_options(const std::string& shim_path, const std::string& output, const std::string& options) {
  std::string line =
      fmt::format("--export=ALL,LD_PRELOAD={},WHYRSS_OUTPUT={}", shell_quoted(shim_path), shell_quoted(output));
  if (!options.empty()) line += fmt::format(",WHYRSS_OPTS={}", shell_quoted(options));
  return line + "\n";
}

std::string docker_options(const std::string& shim_path, const std::string& output, const std::string& options) {
  namespace fs = std::filesystem;
  const std::string prefix = fs::path(shim_path).parent_path().parent_path(), folder = fs::path(output).parent_path();
  std::string line = fmt::format("-v {}:{}:ro -v {}:{} -e LD_PRELOAD={} -e WHYRSS_OUTPUT={}", shell_quoted(prefix),
                                 shell_quoted(prefix), shell_quoted(folder), shell_quoted(folder),
                                 shell_quoted(shim_path), shell_quoted(output));
  if (!options.empty()) line += fmt::format(" -e WHYRSS_OPTS={}", shell_quoted(options));
  return line + "\n";
}

int run_env(const EnvOptions& options) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path shim = (self.parent_path().parent_path() / "lib" / "libwhyrss.so").lexically_normal();
  if (error || !fs::exists(shim, error))
    return complain(shim.string() + " is missing: install whyrss with its library");
  const bool is_shell = options.launcher == "bash";
  const std::string usual = is_shell ? "whyrss-%h-%p" : "whyrss-%j-%h";
  const std::string wanted = options.output.empty() ? usual : options.output;
  const fs::path output = fs::absolute(wanted, error).lexically_normal();
  for (const std::string& text : {shim.string(), output.string(), options.options})
    if (options.launcher == "slurm" && text.find(',') != std::string::npos)
      return complain(fmt::format("env: srun separates by commas, and one is in {}", text), kUsage);
  const auto render = is_shell ? env_lines : options.launcher == "slurm" ? slurm_options : docker_options;
  const std::string lines = render(shim.string(), error ? wanted : output.string(), options.options);
  return write_output(lines, "", "the lines");
}

}  // namespace whyrss
