#include "collect/read/backing.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "support/file.h"

namespace whyrss {

using trace::Backing;

BackingResolver::BackingResolver() {
  // The kernel's own tmpfs mount is in no mount table; any memfd tells its device number.
  const Fd probe(memfd_create("whyrss:probe", MFD_CLOEXEC));
  struct stat status {};
  if (probe && fstat(probe.get(), &status) == 0) kernel_shmem_ = {major(status.st_dev), minor(status.st_dev)};
}

bool BackingResolver::is_local(std::uint32_t device_major, std::uint32_t device_minor) const {
  static constexpr std::array<std::string_view, 12> kLocal{"ext2", "ext3", "ext4", "xfs",      "btrfs", "overlay",
                                                           "f2fs", "zfs",  "vfat", "squashfs", "erofs", "bcachefs"};
  const auto known = types_.find({device_major, device_minor});
  return known != types_.end() && std::ranges::find(kLocal, known->second) != kLocal.end();
}

bool BackingResolver::is_in_memory(std::uint32_t device_major, std::uint32_t device_minor, pid_t pid) {
  const std::pair device(device_major, device_minor);
  if (device == kernel_shmem_) return true;
  const std::string& type = type_of(device, pid);
  return type == "tmpfs" || type == "ramfs" || type == "devtmpfs";
}

const std::string& BackingResolver::type_of(std::pair<std::uint32_t, std::uint32_t> device, pid_t pid) {
  const auto known = types_.find(device);
  if (known != types_.end()) return known->second;
  // Its own mount namespace may have mounts that ours does not.
  if (const auto text = read_file(fmt::format("/proc/{}/mountinfo", pid))) types_.merge(parse_mountinfo(*text));
  return types_[device];  // "" for what is still unknown, so that it is not looked up again
}

bool BackingResolver::is_character_device(const MapsEntry& entry, pid_t pid) {
  const auto known = character_devices_.find(entry.path);
  if (known != character_devices_.end()) return known->second;
  struct stat status {};
  const std::string path = fmt::format("/proc/{}/root{}", pid, entry.path);
  // A node that is gone again (unlinked, other root) can only have been a device: files are not kept there.
  const bool result = stat(path.c_str(), &status) != 0 || S_ISCHR(status.st_mode);
  return character_devices_[entry.path] = result;
}

Backing BackingResolver::classify(const MapsEntry& entry, pid_t pid) {
  const std::string& path = entry.path;
  if (path.empty() && entry.inode == 0) return Backing::anonymous;
  if (path.starts_with('[')) {
    const bool named_memory = path == "[heap]" || path.starts_with("[stack") || path.starts_with("[anon:") ||
                              path.starts_with("[anon_shmem:");
    if (path.starts_with("[anon_shmem:")) return Backing::shmem;
    return named_memory ? Backing::anonymous : Backing::special;
  }
  const std::pair device(entry.device_major, entry.device_minor);
  if (device == kernel_shmem_) return Backing::shmem;
  if (path.starts_with("/anon_hugepage")) return Backing::hugetlb;
  // Same names as on tmpfs, but on a device that is not it: MFD_HUGETLB and SHM_HUGETLB.
  if (entry.device_major == 0 && (path.starts_with("/memfd:") || path.starts_with("/SYSV"))) return Backing::hugetlb;
  if (path == "/dev/zero") return Backing::anonymous;  // MAP_PRIVATE; the shared kind is kernel tmpfs
  if (!path.starts_with('/')) return Backing::device;  // anon_inode:[perf_event], socket:[1], ...
  if (type_of(device, pid) == "hugetlbfs") return Backing::hugetlb;
  if (path.starts_with("/dev/") && !path.starts_with("/dev/shm/") && is_character_device(entry, pid))
    return Backing::device;
  return is_in_memory(entry.device_major, entry.device_minor, pid) ? Backing::shmem : Backing::file;
}

}  // namespace whyrss
