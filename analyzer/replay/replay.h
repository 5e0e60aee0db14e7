// Plays the events and walks of all processes of a recording in time order: what each address space
// looked like at each walk, and what the walk's bytes were for.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attribute/address_space.h"
#include "attribute/page_sharing.h"
#include "decode/image_tables.h"
#include "decode/liveness_reader.h"
#include "decode/page_walk_reader.h"
#include "decode/process_input.h"
#include "decode/stack_store.h"
#include "decode/tick_clock.h"
#include "model/account.h"
#include "replay/pictured_walks.h"
#include "replay/program_images.h"

namespace whyrss {

struct ReplaySettings {
  std::uint64_t origin_ns = 0;
  std::string pool_path;
  // Also shown, if set, what each account is made from.
  std::function<void(int pid, const Evidence&)> see_evidence;
  // What was found later is left out: its events are not stored yet.
  std::uint64_t until_ns = std::numeric_limits<std::uint64_t>::max();
  std::function<void(double)> progress{};         // gets how much is played, from 0 to 1, where it is set
  PictureBudget pictures{};                       // some accounts get one
  std::set<StackId>* allocator_stacks = nullptr;  // gets those of RecordingAccount, if set

  void see_allocator(StackId stack) const {
    if (allocator_stacks != nullptr) allocator_stacks->insert(stack);
  }
};

struct NewMapping;
struct PolledState;

// What the kernel says of a process at its end.
struct KernelEnd {
  std::optional<trace::Poll> at_kill;  // how large it was, by the kernel's log; its faults are not known
  std::int64_t max_rss_bytes = 0;      // ru_maxrss: of it, or of a child that it waited for; 0: not known
};

class Replay {
 public:
  Replay(ReplaySettings settings, StackTable& stacks);
  ~Replay();

  // `input` must outlive the replay; `account` gets accounts, copies, notes and names.
  void add(ProcessInput& input, ProcessAccount& account, const KernelEnd& end = {});

  void run();

  // Of the process that was added as number `index`.
  [[nodiscard]] std::optional<std::uint64_t> first_event_ns(std::size_t index) const;
  // The same, after run(): since when another program runs in it that the library is not in, and what was to be run.
  struct Untraced {
    std::uint64_t since_ns = 0;
    std::string program;
  };
  [[nodiscard]] std::optional<Untraced> untraced(std::size_t index) const;

  [[nodiscard]] const std::vector<Phase>& phases() const { return phases_; }
  [[nodiscard]] const std::vector<Mark>& marks() const { return marks_; }
  [[nodiscard]] std::uint64_t last_ns() const { return last_ns_; }

 private:
  struct Process;
  struct Family;
  struct Walk {
    std::uint64_t time_ns, begin_ns;  // its end is its time
    trace::WalkTrigger trigger;
    const RawFrame* frame;  // in the file, but for its header
  };

  using FileId = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;  // device's numbers, inode

  struct OwnPages {
    std::uint64_t small = 0, all = 0;
  };

  std::vector<EventRecord> load_records(Process& process);
  static void find_teardown(Process& process, const std::vector<EventRecord>& records);
  static bool has_given_back(const Process& process, std::uint64_t from_ns, std::uint64_t to_ns);
  static bool shows_begin_of_teardown(const Process& process, const Walk& walk);
  static void leave_out_teardown(Process& process);
  void settle_end(Process& process) const;
  void leave_out_cut_off_walk(Process& process) const;
  static void settle_polls_of_teardown(Process& process);
  [[nodiscard]] bool was_killed_with_relatives(const Process& process, const Walk& walk) const;
  // It was forked, or forks.
  [[nodiscard]] static bool may_share_pages(const Process& process);
  void find_max_rss();
  void add_poll_at_peak(Process& process) const;
  bool add_poll_by_mark(Process& process) const;
  static void add_poll_by_faults(Process& process);
  void add_poll_by_blocks(Process& process) const;
  static std::int64_t sampled_faults(const Process& process, std::uint64_t from_ns, std::uint64_t to_ns);
  static std::uint64_t resident_by_events(const Process& process);
  static std::uint64_t pages_at_kill(const Process& process, std::uint64_t polled_pages);
  static bool has_moved_since(const Process& process, double walk_s, std::uint64_t origin_ns);
  static void grow_by_fault(Process& process, const EventRecord& record);
  static std::optional<std::uint64_t> teardown_ns(const Process& process);
  void find_moments(Process& process) const;
  static Evidence unwalked(Process& process, SinceWalk& since);
  void estimate(Process& process, const trace::Poll& poll);
  // The whole payload. Valid until the next call.
  static Bytes payload_of(Process& process, const RawFrame& frame);
  static void keep_walk(Process& process, Evidence evidence, const Walk& walk);
  static void note_mapping(Process& process, const trace::MapRecord& map);
  static void read_live_growth(const Process& process, std::uint64_t until_ns, PolledState& polled);
  void play_next(Process& process);
  void report_progress(std::uint64_t now_ns);
  void count_blocks_of(Process& process);
  void begin_walk(Process& process, std::uint64_t time_ns);
  static const WalkedPages* peek_next_walk(Process& process);
  static void name_files(Process& process, std::vector<NewMapping>& mapped);
  static bool next_walk_shows(Process& process, std::uint64_t start, std::uint64_t size_bytes, bool anonymous);
  void play_blocks(Process& process, std::uint64_t limit_ticks);
  void finish(Process& process);
  void on_record(Process& process, const EventRecord& record);
  void on_memory_record(Process& process, const EventRecord& record);
  static void drop_pages(Process& process, const trace::RangeRecord& range);
  void on_block_record(Process& process, const EventRecord& record);
  void on_attach(Process& process, const EventRecord& record);
  void on_fork(Process& process, const EventRecord& record);
  static void on_exec(Process& process, const EventRecord& record);
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
  void walk_family(Process& process, const Walk& walk, const WalkedPages& pages);
  std::vector<Process*> walked_together(Process& process, const Walk& walk);
  static std::uint64_t most_copies(Process& process, const Walk& walk, const WalkedPages& seen);
  static std::uint64_t counted_faults(const Process& process, std::uint64_t before_ns);
  [[nodiscard]] double when_faulted_s(const Process& process, std::uint64_t until_ns) const;
  [[nodiscard]] static std::vector<TouchSample> copies_since_walk(const Process& process);
  [[nodiscard]] static std::uint64_t sampled_copies(const Process& process);
  [[nodiscard]] static std::optional<std::uint64_t> estimated_copies(const Process& process);
  static std::uint64_t most_sampled_copies(Process& process, std::uint64_t until_ns, std::uint64_t faults);
  static std::uint64_t counted_faults(const TouchFigures& touch);
  static std::uint64_t faults_before(const Process& process, const WalkedPages& pages);
  static OwnPages own_pages_of(const Process& process, const WalkedPages& seen);
  void inherit_from_walk(Process& process, const Walk& walk, const WalkedPages& pages);
  void finish_families();
  [[nodiscard]] bool has_rested(const Process& process, double walk_s, double end_s) const;
  [[nodiscard]] std::optional<double> unseen_s(const Process& process) const;
  void leave_ended(Family& family, std::vector<Process*> ended);
  void report_copies(Process& process, std::uint64_t copies, std::uint64_t until_ns);
  [[nodiscard]] std::uint64_t copies_after_last_walk(Process& process) const;
  void add_transitions(Process& process, const std::vector<TransitionRange>& transitions, double time_s,
                       bool estimate = false);
  [[nodiscard]] const std::vector<Process*>& with_pid(std::uint32_t pid) const;
  Process* find_parent(const Process& child, std::uint32_t parent_pid);
  MappingInfo mapping_of(Process& process, std::uint32_t stack_id) const;

  ReplaySettings settings_;
  StackTable& stacks_;
  StackStore store_;
  std::shared_ptr<NamePool> names_ = std::make_shared<NamePool>();  // of what is mapped
  std::vector<std::unique_ptr<Process>> processes_;
  std::unordered_map<std::uint32_t, std::vector<Process*>> by_pid_;  // several of a pid that was used again
  TickClock clock_;
  NamedTables tables_;
  struct EndedChild {
    std::uint32_t pid = 0, parent_pid = 0;
    std::uint64_t time_ns = 0;  // when it was waited for
    std::int64_t max_rss_bytes = 0;
  };
  std::vector<EndedChild> ended_children_;
  std::map<FileId, StackId> shared_files_;  // of those that were counted without being mapped: who made each
  std::vector<Phase> phases_;
  std::vector<Mark> marks_;
  std::uint64_t last_ns_ = 0;
  std::uint64_t report_at_ns_ = 0;  // when the next progress is reported, where there are no frames of blocks
  std::uint64_t block_bytes_ = 0, played_block_bytes_ = 0;  // of frames of blocks, in the files
};

}  // namespace whyrss
