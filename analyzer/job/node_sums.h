// What the processes of each node hold together.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "job/job_view.h"

namespace whyrss {

// Takes the recordings of a job in their order, in which those of one kernel follow each other.
class NodeSums {
 public:
  void add(const ReducedRecording& recording);
  // Afterwards: nearest to their limit first.
  std::vector<NodeSum> nodes();
  // Afterwards: largest sum first.
  [[nodiscard]] std::vector<SharedFile> files() const;

 private:
  struct Change {
    std::int64_t time_ms = 0, private_bytes = 0, rss_bytes = 0;
  };
  struct Mapped {
    std::int64_t most = 0, sum = 0;
    std::size_t process_count = 0;
  };

  void add_process(const ReducedRecording& recording, const ReducedProcess& process);
  void add_changes(const ReducedRecording& recording, const ReducedProcess& process);
  void add_limits(const ReducedRecording& recording);
  void close_node();

  std::vector<NodeSum> nodes_;
  std::map<std::string, SharedFile> job_files_;
  // Of the node at hand:
  std::vector<Change> changes_;
  std::map<std::string, Mapped> files_, shared_;
  std::set<std::string> names_, hosts_, groups_;
  std::set<std::int64_t> ranks_;
  double end_ms_ = 0;  // of its clock
  std::int64_t memory_total_ = 0, unlisted_files_ = 0, unlisted_shared_ = 0;
};

}  // namespace whyrss
