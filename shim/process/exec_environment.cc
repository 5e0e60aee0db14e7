#include "shim/process/exec_environment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/events/session_state.h"
#include "shim/events/settings.h"
#include "shim/observe/observe.h"
#include "shim/process/collector_start.h"
#include "shim/sys/elf_target.h"
#include "shim/sys/own_memory.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {

struct ExecEnvironment::Scratch {
  Text path, others, own, note;
  TargetTexts target;
};

namespace {

// The path to open, as the kernel will take it; false: not known, or not there.
bool find_path(const ExecTarget& target, Text& path) noexcept {
  const bool named = target.path != nullptr && target.path[0] != '\0';
  if (!named && target.fd < 0) return false;
  if (target.search) return search_path(target.path, environment_value(__environ, "PATH"), path);
  if (!named || (target.path[0] != '/' && target.fd >= 0)) {
    add_descriptor_path(target.fd, path);
    if (named) path.add("/");
  }
  if (named) path.add(target.path);
  return !path.cut();
}

// Access as the new program will have it, which has this process's user ids and root directory.
bool can_access(const char* path, int mode) noexcept {
  return !is_raw_error(own_syscall(SYS_access, as_long(path), mode));
}

constexpr int kRead = 4, kWrite = 2;

// Why our library does no good in the program; empty: it does.
std::string_view reason_against(const char* own, const char* path, char* const* environment,
                                TargetTexts& texts) noexcept {
  // Not there behind a chroot, closed to another user: the loader would print an error.
  if (own[0] == '/' && !can_access(own, kRead)) return "our library cannot be reached by it (chroot, another user): ";
  const char* session_value = environment_value(environment, "WHYRSS_SESSION");
  trace::SessionId session{};
  const char* pool = nullptr;
  if (session_value != nullptr && parse_session(session_value, session, pool) && can_access(pool, 0) &&
      !can_access(pool, kRead | kWrite))
    return "it runs as another user, who cannot open the recording: ";
  if (!preload_loads_in(path, texts))
    return "our library cannot load there (32-bit, a sanitizer build, or not this system's glibc): ";
  return {};
}

}  // namespace

ExecEnvironment::ExecEnvironment(const ExecTarget& target, char* const* environment) noexcept
    : environment_(environment) {
  if (environment == nullptr || trace::is_kernel_closed()) return;  // nothing can be asked: as the program says
  // For a moment only: guard pages and a name would be four system calls more. Zero-filled: all texts are empty.
  const long scratch = own_syscall(SYS_mmap, 0, sizeof(Scratch), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (is_raw_error(scratch)) return;
  decide(target, *reinterpret_cast<Scratch*>(scratch));
  own_syscall(SYS_munmap, scratch, sizeof(Scratch));
}

void ExecEnvironment::decide(const ExecTarget& target, Scratch& scratch) noexcept {
  for (std::size_t index = 0; environment_[index] != nullptr; ++index) {
    scratch.others.clear();
    if (!without_own_preload(environment_[index], scratch.others, scratch.own)) continue;
    if (!find_path(target, scratch.path)) return;
    const std::string_view reason =
        reason_against(scratch.own.c_str(), scratch.path.c_str(), environment_, scratch.target);
    if (reason.empty()) return;
    leave_out_own_preload(index, scratch.others.c_str());
    scratch.note.add("not traced inside, ").add(reason).add(scratch.path.view());
    observe_note(scratch.note.view());
    return;
  }
}

void ExecEnvironment::leave_out_own_preload(std::size_t preload_index, const char* others) noexcept {
  std::size_t count = 0;
  while (environment_[count] != nullptr) ++count;
  const std::string_view kept_preload(others);
  char** copy = entries_.data();
  char* preload = preload_.data();
  if (count + 1 > entries_.size() || kept_preload.size() + 1 > preload_.size()) {
    mapped_bytes_ = (count + 1) * sizeof(char*) + kept_preload.size() + 1;
    mapped_ = static_cast<char**>(map_own(mapped_bytes_));
    if (mapped_ == nullptr) return;
    copy = mapped_;
    preload = reinterpret_cast<char*>(mapped_ + count + 1);
  }
  std::memcpy(preload, others, kept_preload.size() + 1);
  std::size_t kept = 0;
  for (std::size_t index = 0; index < count; ++index) {
    if (index != preload_index)
      copy[kept++] = environment_[index];
    else if (kept_preload != "LD_PRELOAD=")
      copy[kept++] = preload;
  }
  copy[kept] = nullptr;
  environment_ = copy;
}

ExecEnvironment::~ExecEnvironment() { unmap_own(mapped_, mapped_bytes_); }

}  // namespace whyrss::shim
