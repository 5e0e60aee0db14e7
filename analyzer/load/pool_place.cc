#include "load/pool_place.h"

#include <fmt/format.h>
#include <unistd.h>

namespace whyrss {
namespace {

constexpr std::size_t kSessionDigits = 32;
constexpr const char* kSharedMemory = "dev/shm";

}  // namespace

Result<Folder> open_shared_memory() {
  const auto root = Folder::open("/");
  return root ? root->open_folder(kSharedMemory) : Result<Folder>(Error{root.error()});
}

std::optional<std::string> shared_pool_name(const Manifest& manifest) {
  const std::string& session = manifest.session;
  if (session.size() != kSessionDigits || session.find_first_not_of("0123456789abcdef") != std::string::npos)
    return std::nullopt;
  std::string name = "whyrss." + session;
  if (manifest.pool_path != fmt::format("/{}/{}", kSharedMemory, name)) return std::nullopt;
  return name;
}

Result<Fd> open_pool(const Folder& shared_memory, const std::string& name) {
  auto file = shared_memory.open_file(name);
  if (!file) return file;
  const EntryStatus status = status_of(*file);
  if (status.owner != geteuid()) return Error{fmt::format("it belongs to the user with the id {}", status.owner)};
  if (status.links != 1) return Error{"it has another name too"};
  return file;
}

}  // namespace whyrss
