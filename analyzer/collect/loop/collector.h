// The collector: follows a process tree and writes its recording until the last process has ended.
#pragma once

#include <sys/types.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collect/loop/control.h"
#include "collect/loop/doorbell.h"
#include "collect/loop/drain.h"
#include "collect/loop/live_reader.h"
#include "collect/loop/process_follow.h"
#include "collect/loop/process_names.h"
#include "collect/loop/uffd_handoff.h"
#include "collect/loop/unmapped_reader.h"
#include "collect/loop/write_faults.h"
#include "collect/start/pool_file.h"
#include "collect/start/recording_directory.h"
#include "collect/start/shared_session.h"
#include "metrics/live_metrics.h"
#include "procfs/process_stat.h"
#include "recording/manifest.h"
#include "recording/manifest_file.h"
#include "support/kernel_log.h"

namespace whyrss {

class Collector {
 public:
  struct Setup {
    RecordingDirectory directory;
    trace::SessionId session;
    PoolFile pool;
    HandoverSocket handover;  // closed: writes are not tracked
    Manifest manifest;
    std::optional<ManifestFile> manifest_file;  // in which `manifest` stands already
    pid_t target = 0;
    SessionGate gate;
    int control_fd = -1;         // -1: not started by record, the target runs already
    std::string memory_group;    // directory of the cgroup that record made for the target
    bool removes_group = false;  // at the end
    double overhead = WalkBudget::kShare;
    LiveMetrics metrics;
  };

  explicit Collector(Setup setup);

  // Until the last traced process has ended. The directory is left as `complete`, or removed when record
  // says that the command never started.
  void run();

  // No record waits for the end, or none any more.
  [[nodiscard]] bool is_alone() const { return setup_.control_fd < 0 || control_.at_end(); }

 private:
  struct Followed {
    std::unique_ptr<ProcessFollow> process;
    std::uint32_t slot = trace::kNoSlot;
    int family = 0;                // forked from each other without an exec
    ProcessKey forked_from{};      // if it was, and has run no other program since
    std::int64_t track_at_ns = 0;  // when its writes, and its parent's, are to be tracked; 0: they are, or never
    std::optional<std::int32_t> exit_status;  // from its exit record
    std::int64_t teardown_ns = 0;             // when its teardown record was read
    std::int64_t image_seen_ns = 0;           // when the program that it runs was first seen
    std::uint32_t walk_served = 0;
    std::uint32_t forks = 0;     // that it had begun when it was walked last
    std::int64_t forked_ns = 0;  // when the number was found moved; 0: never
    PeakPolicy peaks;
    std::int64_t children_scanned_ns = 0;
    std::uint64_t cpu_ticks = 0;      // as read last for busy_cores()
    bool is_process_pending = false;  // its process frame
    bool has_ended = false;
  };

  // A child is followed so long after its fork: until then its parent is not taken for alone.
  static constexpr std::int64_t kChildSeenNs = 1'000'000'000;

  // So long after the command its helpers have ended, most likely: until then record does not hear of them.
  static constexpr std::int64_t kHelpersEndNs = 1'000'000'000;

  // A fork child that lives on after so long has most likely not been made for an exec.
  static constexpr std::int64_t kTrackAfterNs = 50'000'000;

  // Its userfaultfd is waited for so long after that: the machine may be busy.
  static constexpr std::int64_t kHandOverNs = 1'000'000'000;

  // That the followed processes keep busy.
  struct BusyCores {
    std::int64_t read_ns = 0;
    double count = 1;
  };

  // A pending walk of a family.
  struct Due {
    trace::WalkTrigger trigger;
    std::int64_t at_ns, since_ns;
  };

  void wait(std::int64_t deadline_ns);
  void read_control();
  void find_new_slots();
  void follow_target();
  void serve_walk_requests();
  void walk_moved(const Followed* asking);
  void walk_near_limits(std::int64_t now_ns);
  void store_all();
  void serve_store_requests();
  void store_before_namespace_ends(const Followed& leaving);
  bool has_moved(Followed& followed);
  void scan_children(Followed& followed, std::int64_t now_ns);
  void handle_process_events();
  bool poll_one(Followed& followed, std::int64_t now_ns);
  void poll_between_walks();
  void tick(std::int64_t now_ns);
  double busy_cores(std::int64_t now_ns);
  void walk_process(Followed& followed, trace::WalkTrigger trigger,
                    std::optional<WriteTracker::Huge> track = std::nullopt);
  void spend(std::int64_t cpu_ns, trace::WalkTrigger trigger);
  // Of processes that have come to rest, and of those that may share with them.
  void read_plateaus(std::int64_t now_ns);
  void note_other_cgroup(ProcessFollow& process);
  void read_unmapped();
  void schedule_walk(int family, trace::WalkTrigger trigger);
  void walk_families();
  [[nodiscard]] std::vector<Followed*> members_to_walk(int family, std::int64_t now_ns);
  std::int64_t walk_together(const std::vector<Followed*>& members, trace::WalkTrigger trigger,
                             const std::map<Followed*, WriteTracker::Huge>& tracking);
  void take_uffd_handoffs();
  [[nodiscard]] bool may_hand_off(const Followed& child, std::int64_t now_ns) const;
  std::map<Followed*, WriteTracker::Huge> take_due_tracking(const std::vector<Followed*>& members, std::int64_t now_ns);
  void prioritize_tracking();
  [[nodiscard]] static std::int64_t next_tracking(const std::vector<Followed*>& members);
  [[nodiscard]] static bool is_torn_down(const Followed& followed, std::int64_t now_ns);
  [[nodiscard]] static bool is_leaving(const Followed& followed);
  [[nodiscard]] bool has_relatives(const Followed& followed) const;
  void finish_ended();
  void report_survivors(std::int64_t now_ns);
  void finish(Followed& followed);
  void hand_cgroup_on(const Followed& ended);
  void write_end(Followed& followed);
  void wait_for_target_end();
  void report_seen_end();
  std::vector<KernelLine> oom_log_of(pid_t pid, bool was_killed);
  void end_memory_group();
  void drain(std::int64_t now_ns, const std::set<ProcessKey>& ended, bool everything);
  void drain_into(const Drain::Target& target, const std::set<ProcessKey>& ended, bool everything);
  void keep_chunks_ready();
  void drain_while_busy();
  std::int64_t beat();
  void drain_between();
  // Without a parent given, it is looked for among those that are followed.
  Followed* follow(ProcessKey key, pid_t pid, Followed* parent);
  Followed* parent_of(pid_t pid);
  bool is_fork_of(const ProcessFollow& child, Followed& parent);
  [[nodiscard]] std::uint32_t live_slot_of(ProcessKey key) const;
  [[nodiscard]] bool shares_memory(const ProcessStat& child, pid_t pid, const Followed& parent) const;
  void exec_seen(Followed& followed, bool announced = false);
  [[nodiscard]] bool is_gone(ProcessKey key, std::uint32_t tid);
  void log(const std::string& line);
  bool write_manifest();
  void write_last_manifest();
  [[nodiscard]] std::string end_state() const;
  [[nodiscard]] bool is_over();
  void wait_for_last_word();
  void follow_pool_users();
  void note_what_is_left();
  void report_faults();
  void send_faults();
  void serve_metrics();
  LiveFigures live_figures();
  void add_processes(LiveFigures& figures);
  [[nodiscard]] std::int64_t missed_snapshots(const Followed& followed) const;
  [[nodiscard]] std::optional<GroupFigures> group_figures() const;
  void send_to_record(const std::string& text) const;
  void close_recording();

  Setup setup_;
  WriteFaults faults_;
  ManifestFile manifest_file_;
  FollowContext context_;
  BackingResolver resolver_;
  Doorbell doorbell_;
  Drain drain_;
  KernelLog kernel_log_;
  std::vector<KernelLine> oom_lines_;  // of the log since the start
  ProcessNames names_;
  LineReader control_;
  WalkBudget budget_;
  std::map<ProcessKey, Followed> followed_;
  std::map<pid_t, ProcessKey> by_pid_;
  std::set<ProcessKey> ended_;  // their files are closed: late segments have no home
  std::vector<ClosedProcess> closed_;
  LiveReader live_reader_;
  UnmappedReader unmapped_;
  std::int64_t missed_by_ended_ = 0;  // snapshots
  std::uint64_t bytes_of_ended_ = 0;  // of their files
  std::map<int, Due> due_families_;
  std::map<ProcessKey, WriteTracker> handoffs_;  // of processes that are not followed yet
  std::set<ProcessKey> without_uffd_handoff_;    // names of processes that could not
  std::set<ProcessKey> gave_up_lazily_;          // names of processes that are not followed yet
  int next_family_ = 1;
  bool started_ = false;  // the target's own image runs
  bool target_sought_ = false;
  bool abandoned_ = false;
  std::int64_t job_ended_ns_ = 0;     // when the command ended; 0: it runs, or record knows who goes on after it
  bool lost_at_end_ = false;          // though nothing failed
  bool no_space_ = false;             // for more chunks
  std::optional<int> target_status_;  // as far as the collector noticed it; record knows better
  std::string target_signal_;
  std::optional<std::int64_t> target_max_rss_kib_;  // by record
  std::int64_t next_tick_ns_ = 0, next_flush_ns_ = 0, next_counters_ns_ = 0;
  std::int64_t next_company_ns_ = 0;  // when others are read with one that rests
  std::int64_t rested_ns_ = 0;        // when one was last found to rest after it had moved
  std::int64_t polled_ns_ = 0;
  std::int64_t drained_ns_ = 0;
  bool draining_ = false;
  std::int64_t moved_ns_ = 0;       // when a poll last showed that memory of any process moved
  std::int64_t next_phase_ns_ = 0;  // walks at the ends of phases: not before
  std::int64_t next_limit_ns_ = 0;  // walks near memory limits: not before
  BusyCores busy_cores_;
  bool asks_all_ = false;         // the next walk that is asked for is one of all processes
  bool handover_called_ = false;  // in the last wait
  bool in_container_ = false;     // in a pid namespace that may end, and take the collector along
  bool busy_ = false;             // the last round found many events of exact mode
};

}  // namespace whyrss
