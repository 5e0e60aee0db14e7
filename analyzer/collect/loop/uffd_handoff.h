// Where the processes of the tree hand over their userfaultfd (PoolHeader::handover_path).
//
// A file, not an abstract name, which would go with the collector: an abstract name belongs to a network namespace. A
// process of the tree in another one (unshare -n, a container) could not reach it, and every user of the same one sees
// it in /proc/net/unix and may listen there once the collector is dead; a userfaultfd reads and writes its process's
// memory. A socket in /dev/shm is reached by the same user alone, and no other user can put another in its place (the
// sticky bit). The price: it stays when the collector is killed. A report removes it (load/pool_rescue), or the next
// recording of the same user. Pools are never removed so: they hold what a report of their recording still wants.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shim/trace/pool.h"
#include "support/file.h"
#include "support/folder.h"

namespace whyrss {

// Those of this user's sessions where no collector listens any more, if they are older than that.
void remove_dead_sockets(const Folder& folder, std::int64_t least_age_s);

struct UffdHandoff {
  pid_t pid = 0;  // here; who connected, by the kernel's word
  std::uint64_t start_ticks = 0;
  Fd descriptor;
};

// Listens; only processes of the same user reach it. Removes its file when it goes.
class HandoverSocket {
 public:
  HandoverSocket() = default;
  // Removes sockets of dead collectors first. Beside the pool's file; else, where that has none or a name too long for
  // a socket, in `recording_directory`.
  static Result<HandoverSocket> open(const std::string& pool_path, const std::string& recording_directory);
  HandoverSocket(HandoverSocket&& other) noexcept;
  HandoverSocket& operator=(HandoverSocket&& other) noexcept;
  HandoverSocket(const HandoverSocket&) = delete;
  HandoverSocket& operator=(const HandoverSocket&) = delete;
  ~HandoverSocket();

  // Tells the processes of the pool.
  void announce(trace::PoolView pool) const;

  [[nodiscard]] bool is_open() const { return static_cast<bool>(listener_); }
  // To wait for; -1: there is none, or no descriptor is left for what would come.
  [[nodiscard]] int fd() const { return out_of_descriptors_ ? -1 : listener_.get(); }
  // Something may come for which fd() does not wake.
  [[nodiscard]] bool is_receiving() const { return !connections_.empty() || out_of_descriptors_; }
  // What has come since the last call; never waits.
  std::vector<UffdHandoff> take();

 private:
  Fd listener_;
  std::vector<Fd> connections_;  // whose message has not come yet
  std::string path_;
  bool out_of_descriptors_ = false;
};

}  // namespace whyrss
