// Plays the events and walks of all processes of a recording in time order: what each address space
// looked like at each walk, and what the walk's bytes were for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attribute/address_space.h"
#include "attribute/page_sharing.h"
#include "ingest/image_tables.h"
#include "ingest/liveness_reader.h"
#include "ingest/page_walk_reader.h"
#include "ingest/process_input.h"
#include "ingest/tick_clock.h"
#include "model/account.h"

namespace whyrss {

struct ReplaySettings {
  std::uint64_t origin_ns = 0;
  std::string pool_path;
  // Also shown, if set, what each account is made from.
  std::function<void(int pid, const Evidence&)> see_evidence;
};

class Replay {
 public:
  Replay(ReplaySettings settings, StackTable& stacks);
  ~Replay();

  // `input` must outlive the replay; `account` gets accounts, copies, notes and names.
  // `at_kill`: how large the process was when the kernel killed it, by the kernel's log; its faults are not known.
  void add(ProcessInput& input, ProcessAccount& account, const std::optional<trace::Poll>& at_kill = std::nullopt);

  void run();

  // Of the process that was added as number `index`.
  [[nodiscard]] std::optional<std::uint64_t> first_event_ns(std::size_t index) const;

  [[nodiscard]] const std::vector<Phase>& phases() const { return phases_; }
  [[nodiscard]] const std::vector<Mark>& marks() const { return marks_; }
  [[nodiscard]] std::uint64_t last_ns() const { return last_ns_; }

 private:
  struct Process;
  struct Family;
  struct Walk {
    std::uint64_t time_ns, begin_ns;  // its end is its time
    trace::WalkTrigger trigger;
    Bytes payload;
  };

  struct OwnPages {
    std::uint64_t small = 0, all = 0;
  };

  void load_records(Process& process);
  static void find_teardown(Process& process);
  static void leave_out_teardown(Process& process);
  void settle_end(Process& process) const;
  void leave_out_cut_off_look(Process& process) const;
  [[nodiscard]] bool was_killed_with_relatives(const Process& process, const Walk& look) const;
  // It was forked, or forks.
  [[nodiscard]] static bool may_share_pages(const Process& process);
  static void add_poll_by_faults(Process& process);
  static void grow_by_fault(Process& process, const EventRecord& record);
  static std::optional<std::uint64_t> teardown_ns(const Process& process);
  static void find_moments(Process& process);
  static Evidence unwalked(Process& process, SinceWalk& since);
  void estimate(Process& process, const trace::Poll& poll);
  static void keep_walk(Process& process, Evidence evidence, const Walk& walk);
  static void note_mapping(Process& process, const trace::MapRecord& map);
  static std::optional<std::int64_t> live_growth(const Process& process, std::uint64_t until_ns);
  void play_next(Process& process);
  void begin_look(Process& process, std::uint64_t time_ns);
  static bool next_walk_shows(Process& process, std::uint64_t start, std::uint64_t size_bytes, bool anonymous);
  void play_blocks(Process& process, std::uint64_t limit_ticks);
  void finish(Process& process);
  void on_record(Process& process, const EventRecord& record);
  void on_memory_record(Process& process, const EventRecord& record);
  static void drop_pages(Process& process, const trace::RangeRecord& range);
  void on_block_record(Process& process, const EventRecord& record);
  void on_attach(Process& process, const EventRecord& record);
  void on_fork(Process& process, const EventRecord& record);
  void on_text(Process& process, const EventRecord& record);
  void on_walk(Process& process, const Walk& walk);
  static void take_huge_pages(Process& process, std::uint64_t walk_ns, Evidence& evidence);
  static void take_lazy_free(Process& process, std::uint64_t walk_ns, Evidence& evidence);
  static std::vector<Range> given_up_until(const Process& process, std::uint64_t time_ns);
  static void take_views(Process& process, std::uint64_t walk_ns, double time_s);
  static void take_liveness(Process& process, std::uint64_t walk_ns, Evidence& evidence);
  static void add_tracked(Process& process, Bytes payload);
  void join_family(Process& child, Process* parent, std::uint64_t time_ns);
  void leave_family(Process& process, std::uint64_t time_ns);
  void take_tracked(Process& process, std::uint64_t walk_ns);
  void observe_sharing(Process& process, const Walk& walk, const WalkedPages& pages, bool seen_ahead);
  void look_at_family(Process& process, const Walk& walk, const WalkedPages& pages);
  std::vector<Process*> looked_at_with(Process& process, const Walk& walk);
  static std::uint64_t most_copies(Process& process, const Walk& walk, const WalkedPages& seen);
  static std::uint64_t counted_faults(const Process& process, std::uint64_t before_ns);
  [[nodiscard]] double when_faulted_s(const Process& process, std::uint64_t until_ns) const;
  [[nodiscard]] static std::vector<TouchSample> copies_since_look(const Process& process);
  [[nodiscard]] static std::uint64_t sampled_copies(const Process& process);
  [[nodiscard]] static std::optional<std::uint64_t> estimated_copies(const Process& process);
  static std::uint64_t most_sampled_copies(Process& process, std::uint64_t until_ns, std::uint64_t faults);
  static std::uint64_t counted_faults(const TouchFigures& touch);
  static std::uint64_t faults_before(const Process& process, const WalkedPages& pages);
  static OwnPages own_pages_of(const Process& process, const WalkedPages& seen);
  void inherit_from_walk(Process& process, const Walk& walk, const WalkedPages& pages);
  void finish_families();
  [[nodiscard]] bool has_rested(const Process& process, double look_s, double end_s) const;
  [[nodiscard]] std::optional<double> unseen_s(const Process& process) const;
  void leave_ended(Family& family, std::vector<Process*> ended);
  void tell_copies(Process& process, std::uint64_t copies, std::uint64_t until_ns);
  [[nodiscard]] std::uint64_t copies_after_last_look(Process& process) const;
  void add_fates(Process& process, const std::vector<FateRange>& fates, double time_s, bool estimate = false);
  Process* find_parent(const Process& child, std::uint32_t parent_pid);
  void inherit_tables(ImageTables& image, const Process* parent, std::uint64_t fork_ns);
  MappingInfo mapping_of(Process& process, std::uint32_t stack_id) const;

  ReplaySettings settings_;
  StackTable& stacks_;
  std::vector<std::unique_ptr<Process>> processes_;
  TickClock clock_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, ImageTables*> tables_;  // by pid and since_ns
  std::vector<Phase> phases_;
  std::vector<Mark> marks_;
  std::uint64_t last_ns_ = 0;
};

}  // namespace whyrss
