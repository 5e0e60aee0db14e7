// What a mapping is backed by, from its line in maps and the mount table.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <utility>

#include "procfs/maps.h"
#include "shim/trace/recording_format.h"

namespace whyrss {

// Remembers what it learnt about devices, so one serves all walks. Not thread-safe.
class BackingResolver {
 public:
  BackingResolver();
  // `pid` is read only for a device that was not seen before.
  trace::Backing classify(const MapsEntry& entry, pid_t pid);
  // Of a device that classify() has seen: a file system of this machine, where asking for a path waits for no network
  // and no program.
  [[nodiscard]] bool is_local(std::uint32_t device_major, std::uint32_t device_minor) const;
  // Whether files on that device are in memory: memfd, SysV, tmpfs. `pid` as for classify().
  [[nodiscard]] bool is_in_memory(std::uint32_t device_major, std::uint32_t device_minor, pid_t pid);

 private:
  const std::string& type_of(std::pair<std::uint32_t, std::uint32_t> device, pid_t pid);
  bool is_character_device(const MapsEntry& entry, pid_t pid);

  std::pair<std::uint32_t, std::uint32_t> kernel_shmem_;  // memfd, SysV and MAP_SHARED|MAP_ANONYMOUS live there
  DeviceTypes types_;
  std::map<std::string, bool> character_devices_;
};

}  // namespace whyrss
