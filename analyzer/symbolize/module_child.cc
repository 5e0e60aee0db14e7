#include "symbolize/module_child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "support/file.h"
#include "symbolize/allocator_text.h"
#include "symbolize/dwarf_lines.h"
#include "symbolize/elf_file.h"
#include "symbolize/symbol_names.h"

namespace whyrss {
namespace {

// Of one name; longer text is cut off.
constexpr std::size_t kLongestText = 8192;
constexpr std::uint64_t kMostInlinedCalls = 1000;
// What the process may still allocate. Not under AddressSanitizer, whose shadow counts as data.
constexpr std::uint64_t kMemoryLimitBytes = 2ULL * 1024 * 1024 * 1024;
constexpr std::size_t kWriteBytes = 32 * 1024;

// What an answer is made of: a letter, then numbers and texts.
constexpr char kError = 'e';      // text
constexpr char kNames = 'n';      // address, count, then (function, file, line) x count
constexpr char kDebugInfo = 'd';  // it has debug info, or needs none
constexpr char kAllocator = 'a';  // text
constexpr char kEnd = 'z';

void append(std::string& out, std::uint64_t value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }

void append(std::string& out, const std::string& text) {
  append(out, std::uint64_t{std::min(text.size(), kLongestText)});
  out.append(text, 0, kLongestText);
}

void append_names(std::string& out, std::uint64_t address, const std::vector<CodeLine>& lines) {
  const std::size_t count = std::min<std::size_t>(lines.size(), kMostInlinedCalls);
  out += kNames;
  append(out, address);
  append(out, std::uint64_t{count});
  for (std::size_t i = 0; i < count; ++i) {
    append(out, lines[i].function);
    append(out, lines[i].file);
    append(out, static_cast<std::uint64_t>(lines[i].line));
  }
}

void limit_memory() {
#ifndef __SANITIZE_ADDRESS__
  std::ifstream statm("/proc/self/statm");
  std::uint64_t data_pages = 0;
  for (int field = 0; field < 6; ++field) statm >> data_pages;  // the sixth: data + stack
  if (!statm) return;
  const rlim_t limit = data_pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + kMemoryLimitBytes;
  const rlimit data{limit, limit};
  setrlimit(RLIMIT_DATA, &data);
#endif
}

void limit_self(const ReadLimits& limits) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit_memory();
  const auto seconds = static_cast<rlim_t>(limits.cpu_s);
  const rlimit cpu{seconds, seconds}, core{0, 0};
  setrlimit(RLIMIT_CPU, &cpu);
  setrlimit(RLIMIT_CORE, &core);
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) signal(number, SIG_DFL);
  // Parsers and demanglers print and abort as they like: not onto the user's terminal.
  const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_fd >= 0)
    for (const int standard : {0, 1, 2}) dup2(null_fd, standard);
}

// Lines inside the C library help no reader, and a distribution's debug file for it takes 0.1 s to unpack.
bool wants_lines(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return !name.starts_with("libc.so") && !name.starts_with("libc-2") && !name.starts_with("ld-linux");
}

// Symbols first and lines over them, so that what was found before a crash or a limit arrives.
bool answer(int fd, const ModuleToRead& wanted) {
  const Result<ElfFile> file = ElfFile::open(wanted.module.path, wanted.module.build_id);
  std::string out;
  if (!file) {
    out = kError;
    append(out, file.error());
    out += kEnd;
    return write_fully(fd, out);
  }
  const std::vector<std::string> symbols = symbol_names(file->module(), wanted.addresses);
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    std::vector<CodeLine> lines;
    if (!symbols[i].empty()) lines.push_back({symbols[i], "", 0});
    append_names(out, wanted.addresses[i], lines);
  }
  // Where all have a name its functions tell.
  if (std::ranges::any_of(symbols, &std::string::empty)) {
    out += kAllocator;
    append(out, allocator_by_text(file->module()));
  }
  if (!write_fully(fd, out)) return false;
  out.clear();
  bool good = true;
  const auto add_lines = [&](std::size_t i, std::vector<CodeLine> lines) {
    if (!symbols[i].empty()) lines.back().function = symbols[i];
    append_names(out, wanted.addresses[i], lines);
    if (out.size() < kWriteBytes) return;
    good = good && write_fully(fd, out);
    out.clear();
  };
  if (!wants_lines(wanted.module.path) || find_dwarf_lines(file->module(), wanted.addresses, add_lines))
    out += kDebugInfo;
  out += kEnd;
  return good && write_fully(fd, out);
}

class AnswerReader {
 public:
  explicit AnswerReader(const std::string& bytes) : bytes_(bytes) {}
  [[nodiscard]] bool at_end() const { return at_ >= bytes_.size(); }
  char letter() { return bytes_[at_++]; }
  bool number(std::uint64_t& value) {
    if (bytes_.size() - at_ < sizeof value) return false;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return true;
  }
  bool text(std::string& value) {
    std::uint64_t size = 0;
    if (!number(size) || size > bytes_.size() - at_) return false;
    value.assign(bytes_, at_, size);
    at_ += size;
    return true;
  }
  bool names(ModuleNames& names) {
    std::uint64_t address = 0, count = 0;
    if (!number(address) || !number(count) || count > kMostInlinedCalls) return false;
    std::vector<CodeLine> lines;
    for (std::uint64_t i = 0; i < count; ++i) {
      CodeLine line;
      std::uint64_t number_of_line = 0;
      if (!text(line.function) || !text(line.file) || !number(number_of_line)) return false;
      line.line = number_of_line < 1U << 30 ? static_cast<int>(number_of_line) : 0;
      lines.push_back(std::move(line));
    }
    names.lines[address] = std::move(lines);
    return true;
  }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

}  // namespace

void read_module_as_child(int pipe_fd, const ModuleToRead& wanted, const ReadLimits& limits) {
  const int fd = fcntl(pipe_fd, F_DUPFD_CLOEXEC, 3);  // 0 to 2 are given away
  if (fd < 0) _exit(1);
  limit_self(limits);
  _exit(answer(fd, wanted) ? 0 : 1);
}

ModuleAnswer parse_module_answer(const std::string& bytes, bool& finished) {
  ModuleAnswer result;
  finished = false;
  AnswerReader reader(bytes);
  while (!reader.at_end()) {
    const char letter = reader.letter();
    bool good = true;
    if (letter == kNames) good = reader.names(result.names);
    if (letter == kError) good = reader.text(result.note);
    if (letter == kAllocator) good = reader.text(result.names.allocator);
    if (letter == kDebugInfo) result.names.has_debug_info = true;
    if (letter == kEnd) finished = true;
    if (!good) break;
  }
  return result;
}

}  // namespace whyrss
