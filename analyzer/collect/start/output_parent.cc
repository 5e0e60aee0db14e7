#include "collect/start/output_parent.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <utility>

#include "support/text.h"

namespace whyrss {
namespace {

constexpr int kMostLinks = 40;                 // as the kernel
constexpr unsigned kMadeDirectoryMode = 0755;  // others may not write, whatever the umask

// Root's group is root in all but name; containers for any user rely on it.
bool others_may_write(const EntryStatus& directory) {
  const unsigned group = directory.group == 0 ? 0 : S_IWGRP;
  return (directory.mode & (group | S_IWOTH)) != 0;
}

bool is_of(const EntryStatus& entry, uid_t user) { return entry.owner == user || entry.owner == 0; }

// Goes from / to the directory above `path`.
class Walk {
 public:
  explicit Walk(const std::string& path) : path_(path), rest_(path) {}

  Result<Folder> run() {
    if (Status begun = begin(); !begun) return Error{begun.error()};
    while (true) {
      while (rest_.starts_with('/')) rest_.erase(0, 1);
      if (rest_.find('/') == std::string::npos) return here_;
      std::string_view rest = rest_;
      const std::string name(take_until(rest, '/'));
      rest_ = std::string(rest);
      if (const Status gone = step(name); !gone) return Error{gone.error()};
    }
  }

 private:
  // Restarts at the root, for what is left.
  Status begin() {
    auto root = Folder::open("/");
    if (!root) return Error{root.error()};
    only_roots_ = true;
    return enter(std::move(*root));
  }

  Status enter(Folder next) {
    here_ = std::move(next);
    const EntryStatus status = here_.status();
    const bool others = others_may_write(status), sticky = (status.mode & S_ISVTX) != 0;
    only_roots_ = only_roots_ && status.owner == 0 && !others;
    shared_ = others;
    if (!others || status.owner == geteuid() || (sticky && status.owner == 0)) return Done{};
    return refuse(
        fmt::format("{} belongs to the user with the id {}, and others may write into it", here_.path(), status.owner));
  }

  Status step(const std::string& name) {
    const EntryStatus entry = here_.status_of(name);
    if (entry.kind == EntryKind::missing) {
      auto made = here_.make_folder(name, kMadeDirectoryMode);
      // Others who start at the same moment make it too.
      if (!made) made = here_.open_folder(name);
      return made ? enter(std::move(*made)) : Status(cannot_create(made.error()));
    }
    if (entry.kind == EntryKind::link) return follow(name, entry);
    if (entry.kind != EntryKind::directory)
      return Error{
          fmt::format("cannot create the output directory {}: {} is not a directory", path_, here_.path_of(name))};
    if (shared_ && !is_of(entry, geteuid()))
      return refuse(fmt::format("{} belongs to the user with the id {}", here_.path_of(name), entry.owner));
    auto next = here_.open_folder(name);
    return next ? enter(std::move(*next)) : Status(cannot_create(next.error()));
  }

  Status follow(const std::string& name, const EntryStatus& link) {
    const std::string target = here_.link_target(name);
    if (!only_roots_ || link.owner != 0 || target.empty() || ++links_ > kMostLinks)
      return refuse(fmt::format("{} is a symbolic link (to {})", here_.path_of(name), target));
    // By name alone is right: what was passed so far holds no link, and what is left is walked again.
    rest_ = (std::filesystem::path(here_.path()) / target / rest_).lexically_normal().string();
    return begin();
  }

  [[nodiscard]] Status refuse(const std::string& why) const {
    return Error{
        fmt::format("{} is not used for a recording: {}; choose another directory (-o, WHYRSS_OUTPUT)", path_, why)};
  }
  [[nodiscard]] Error cannot_create(const std::string& why) const {
    return {fmt::format("cannot create the output directory {}: {}", path_, why)};
  }

  const std::string& path_;
  std::string rest_;
  Folder here_;
  bool only_roots_ = true;  // up to here, root alone can have made or changed anything
  bool shared_ = false;     // others may put something here
  int links_ = 0;
};

}  // namespace

Result<Folder> open_output_parent(const std::string& path) { return Walk(path).run(); }

}  // namespace whyrss
