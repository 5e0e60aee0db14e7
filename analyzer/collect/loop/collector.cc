#include "collect/loop/collector.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "collect/read/process_presence.h"
#include "procfs/process_stat.h"
#include "support/clock.h"
#include "support/file.h"
#include "support/helper_command.h"
#include "support/proc_path.h"
#include "support/text.h"

namespace whyrss {
namespace {

using trace::RecordKind;
using trace::WalkTrigger;

constexpr std::int64_t kTickNs = 100'000'000;
// While memory moves, and for so long after: what happens between two walks is known from polls alone.
constexpr std::int64_t kMovingTickNs = 20'000'000;
constexpr std::int64_t kStillMovingNs = 200'000'000;
constexpr std::int64_t kBusyCoresNs = 500'000'000;  // the kernel counts CPU time in ticks of 10 ms
// So often it looks for requests where nothing wakes it.
constexpr int kUnwokenMs = 5;
constexpr std::int64_t kTickPerProcessNs = 1'000'000;  // a large tree is polled more slowly
constexpr std::int64_t kYoungNs = 100'000'000;
constexpr std::int64_t kFlushNs = 1'000'000'000;
constexpr std::int64_t kContainerFlushNs = 100'000'000;  // the pool may vanish with the collector
constexpr std::int64_t kCountersNs = 10'000'000'000;
constexpr std::int64_t kChildrenNs = 500'000'000;
constexpr std::int64_t kManyThreads = 16;
constexpr std::int64_t kGiveUpNs = 1'000'000'000;  // on record's word of how the command ended, and the like
constexpr useconds_t kAgainUs = 2000;
constexpr double kFileClockS = 1;                 // times of files lag by no more
constexpr std::size_t kClosedProcessBytes = 192;  // of the last manifest
// Exact mode: a round that finds this many events (4 chunks) is followed by another, for at most so long in a row; a
// program that does nothing but malloc fills the pool in 20 ms.
constexpr std::uint64_t kBusyRecords = 3000;
constexpr std::int64_t kBusyNs = 50'000'000;
constexpr std::int64_t kBetweenNs = 2'000'000;

// What the event pool had no room for, and what it has room for.
std::vector<std::string> shortages(const trace::PoolHeader& pool) {
  std::vector<std::string> found;
  if (pool.dropped_records.load() > 0)
    found.push_back(
        fmt::format("all {} buffers for events were taken when events were lost: each thread that allocates "
                    "holds one, and full ones wait for the collector",
                    pool.chunk_count));
  if (const std::uint64_t refused = pool.refused_slots.load(); refused > 0)
    found.push_back(
        fmt::format("{} programs found none of the {} places for processes free: so many ran at once, or they "
                    "ended faster than the collector reads; they have no last snapshot",
                    refused, pool.slot_count));
  return found;
}

std::optional<ProcessStat> stat_of(pid_t pid) {
  const auto text = read_line_file(fmt::format("/proc/{}/stat", pid));
  return text ? parse_process_stat(*text) : std::nullopt;
}

// One that ran exec where it can read /proc no more names itself otherwise since, and has another slot.
bool has_lost_proc(const trace::ProcessSlot& before, const trace::ProcessSlot& now) {
  return before.start_ticks != 0 && now.start_ticks == 0;
}

}  // namespace

Collector::Collector(Setup setup)
    : setup_(std::move(setup)),
      faults_(setup_.directory.path),
      manifest_file_(setup_.manifest_file ? std::move(*setup_.manifest_file) : ManifestFile(setup_.directory.path)),
      context_{.directory = setup_.directory.path,
               .host = setup_.manifest.host,
               .memory_group = setup_.memory_group,
               .session = setup_.session,
               .methods = probe_walk_methods(),
               .resolver = &resolver_,
               .share = setup_.overhead,
               .faults = &faults_},
      doorbell_(setup_.pool.view()),
      drain_(setup_.pool.view()),
      kernel_log_(kernel_log_has_our_pids() ? KernelLog::open(KernelLog::From::now) : KernelLog()),
      names_([this](pid_t pid) { return setup_.pool.is_mapped_by(pid); }),
      control_(setup_.control_fd),
      budget_(monotonic_ns(), setup_.overhead),
      unmapped_(resolver_, static_cast<double>(clock_ns(CLOCK_REALTIME)) / 1e9 - kFileClockS),
      started_(setup_.control_fd < 0) {
  context_.methods.between = [this] { drain_between(); };
  if (doorbell_.error() != 0)
    log(fmt::format("no thread for the doorbell ({}): snapshots come up to {} ms late",
                    std::strerror(doorbell_.error()), kUnwokenMs));
}

void Collector::run() {
  if (!setup_.manifest_file) write_manifest();
  in_container_ = !is_in_first_pid_namespace();
  if (in_container_) drain_.set_store_after(kContainerFlushNs);
  next_counters_ns_ = monotonic_ns() + kCountersNs;
  const std::int64_t first_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  while (true) {
    wait(next_tick_ns_);
    const std::int64_t now_ns = monotonic_ns();
    doorbell_.clear();
    read_control();
    if (abandoned_) break;
    drain(now_ns, {}, false);
    drain_while_busy();
    handle_process_events();
    find_new_slots();
    follow_target();
    take_uffd_handoffs();
    prioritize_tracking();
    serve_walk_requests();
    serve_store_requests();
    if (now_ns >= next_tick_ns_) tick(now_ns);
    serve_metrics();
    budget_.settle(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - first_cpu_ns - context_.exact_cpu_ns);
    walk_families();
    finish_ended();
    if (faults_.take_news()) report_faults();
    report_survivors(now_ns);
    if (started_ && followed_.empty() && !setup_.gate.expects_more() && is_over() && setup_.gate.close(setup_.pool))
      break;
  }
  close_recording();
}

// What is still in the pool may tell of processes that came unseen, and some of them may go on.
bool Collector::is_over() {
  drain(monotonic_ns(), {}, true);
  if (!followed_.empty()) return false;
  wait_for_last_word();
  drain(monotonic_ns(), {}, true);
  find_new_slots();
  if (followed_.empty()) follow_pool_users();
  return followed_.empty();
}

// A child that was made where no hook sees it (by a bare system call, or by a parent that was killed in the middle of
// it) has the pool mapped, and is not known from anything else. An end takes a moment to give the mapping back.
void Collector::follow_pool_users() {
  const std::int64_t deadline_ns = monotonic_ns() + kGiveUpNs;
  while (setup_.pool.is_in_use()) {
    for (const pid_t pid : setup_.pool.users())
      if (const auto ticks = start_ticks_of(pid))
        follow({.pid = static_cast<std::uint32_t>(pid), .start_ticks = *ticks}, pid, nullptr);
    if (!followed_.empty()) return;
    if (monotonic_ns() > deadline_ns) {
      log("a process that cannot be seen from here still has the pool of events open");
      lost_at_end_ = true;
      return;
    }
    usleep(kAgainUs);
  }
}

// record reaps the target after we saw it end: its word on how comes a moment later.
void Collector::wait_for_last_word() {
  const std::int64_t deadline_ns = monotonic_ns() + kGiveUpNs;
  while (setup_.control_fd >= 0 && !control_.at_end() && !setup_.manifest.exit_code && !setup_.manifest.exit_signal &&
         monotonic_ns() < deadline_ns) {
    wait(deadline_ns);
    doorbell_.clear();
    read_control();
    serve_metrics();
  }
}

void Collector::wait(std::int64_t deadline_ns) {
  std::vector<pollfd> entries{{.fd = doorbell_.fd(), .events = POLLIN, .revents = 0}};
  if (setup_.control_fd >= 0 && !control_.at_end())
    entries.push_back({.fd = setup_.control_fd, .events = POLLIN, .revents = 0});
  if (setup_.handover.fd() >= 0) entries.push_back({.fd = setup_.handover.fd(), .events = POLLIN, .revents = 0});
  for (const auto& [key, followed] : followed_)
    if (!followed.has_ended && followed.process->pidfd() >= 0)
      entries.push_back({.fd = followed.process->pidfd(), .events = POLLIN, .revents = 0});
  for (const auto& [family, due] : due_families_) deadline_ns = std::min(deadline_ns, due.at_ns);
  deadline_ns = std::min(deadline_ns, setup_.metrics.wait_for(entries, monotonic_ns()));
  const std::int64_t left_ms = (deadline_ns - monotonic_ns() + 999'999) / 1'000'000;
  const int longest_ms = doorbell_.error() == 0 ? 100 : kUnwokenMs;
  poll(entries.data(), entries.size(), static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, longest_ms)));
  handover_called_ = std::ranges::any_of(
      entries, [this](const pollfd& entry) { return entry.fd == setup_.handover.fd() && entry.revents != 0; });
}

void Collector::read_control() {
  if (setup_.control_fd < 0) return;
  while (const auto line = control_.next()) {
    std::string_view rest = *line;
    const std::string_view verb = take_word(rest);
    const std::string_view value = take_word(rest);
    if (verb == "started") started_ = true;
    if (verb == "failed") abandoned_ = true;
    if (verb == "max_rss") target_max_rss_kib_ = parse_number<std::int64_t>(value);
    if (verb == "exit") setup_.manifest.exit_code = parse_number<int>(value);
    if (verb == "signal") setup_.manifest.exit_signal = std::string(value);
    if (verb == "exit" || verb == "signal") job_ended_ns_ = monotonic_ns();
  }
  // record was killed before it could tell: the target is followed if it is there.
  if (control_.at_end() && !started_) started_ = true;
}

// `key` as the pool has it. Only what has ended for certain is gone: its chunks are taken from it.
bool Collector::is_gone(ProcessKey key, std::uint32_t tid) {
  const auto pid = names_.pid_of(key, monotonic_ns());
  if (!pid) return false;
  if (*pid == 0) return true;
  const ProcessKey own = names_.own_key(key);
  if (const auto found = followed_.find(own); found != followed_.end() && found->second.process->has_ended())
    return true;
  if (own != key) return false;  // its thread ids are not ours: its chunks come back at its end
  return access(fmt::format("/proc/{}/task/{}", *pid, tid).c_str(), F_OK) != 0 && errno == ENOENT;
}

std::uint32_t Collector::live_slot_of(ProcessKey key) const {
  const trace::PoolView pool = setup_.pool.view();
  const std::set<ProcessKey> names = names_.names_of(key);
  for (std::uint32_t index = 0; index < pool.header->slot_count; ++index) {
    const trace::ProcessSlot& slot = pool.slots[index];
    if (slot.state.load(std::memory_order_acquire) == trace::SlotState::live &&
        names.contains({.pid = slot.pid, .start_ticks = slot.start_ticks}))
      return index;
  }
  return trace::kNoSlot;
}

// A vfork or posix_spawn child before its exec runs on its parent's memory, which is not its own. Where the kernel does
// not say (EPERM in containers), one that runs what its traced parent runs is taken for such a child: a fork child has
// a slot, and is found by it.
bool Collector::shares_memory(const ProcessStat& child, pid_t pid, const Followed& parent) const {
  const long different = syscall(SYS_kcmp, pid, parent.process->pid(), KCMP_VM, 0, 0);
  if (different >= 0) return different == 0;
  // The parent may have attached a moment ago: its slot is looked for anew.
  return child.start_stack != 0 && child.start_stack == parent.process->start_stack() &&
         live_slot_of(parent.process->key()) != trace::kNoSlot;
}

Collector::Followed* Collector::parent_of(pid_t pid) {
  const auto stat = pid > 0 ? stat_of(pid) : std::nullopt;
  const auto parent = by_pid_.find(stat ? static_cast<pid_t>(stat->parent_pid) : -1);
  return parent == by_pid_.end() ? nullptr : &followed_.at(parent->second);
}

// Whether both run the same program since the same start. The parent may just have become another one.
bool Collector::is_fork_of(const ProcessFollow& child, Followed& parent) {
  const auto same = [&] {
    return parent.process->start_stack() == child.start_stack() && parent.process->start_code() == child.start_code();
  };
  if (same()) return true;
  bool exec = false;
  if (parent.process->poll(exec) && exec) exec_seen(parent);
  return same();
}

Collector::Followed* Collector::follow(ProcessKey key, pid_t pid, Followed* parent) {
  if (const auto found = followed_.find(key); found != followed_.end()) return &found->second;
  if (ended_.contains(key)) return nullptr;
  Followed followed;
  followed.process = std::make_unique<ProcessFollow>(context_, key, pid);
  ProcessFollow& fresh = *followed.process;
  bool exec = false;
  followed.image_seen_ns = monotonic_ns();
  fresh.poll(exec);
  if (parent == nullptr) parent = parent_of(pid);
  const bool forked = parent != nullptr && is_fork_of(fresh, *parent);
  if (forked) parent->process->forget_what_is_own();
  followed.family = forked ? parent->family : next_family_++;
  if (forked && setup_.handover.is_open()) {
    followed.forked_from = parent->process->key();
    followed.track_at_ns = followed.image_seen_ns + kTrackAfterNs;
  }
  for (const ProcessKey name : names_.names_of(key))
    if (gave_up_lazily_.erase(name) > 0) fresh.expect_lazy_free();
  if (forked && parent->process->may_have_lazy_free()) fresh.expect_lazy_free();
  followed.slot = live_slot_of(key);
  // Most fork children run another program at once, and what they run before that their own record says.
  followed.is_process_pending = forked && followed.slot != trace::kNoSlot;
  if (!followed.is_process_pending) fresh.write_process(followed.slot != trace::kNoSlot);
  Followed& stored = followed_.emplace(key, std::move(followed)).first->second;
  if (pid > 0) {
    by_pid_[pid] = key;
    if (forked) {
      schedule_walk(stored.family, WalkTrigger::fork);
    } else if (pid == setup_.target) {
      walk_process(stored, WalkTrigger::start);
    }
    if (pid == setup_.target) {
      started_ = true;  // record has yet to say so, and may be stopped before
      stored.process->write_cgroup(false);
    }
  }
  return &stored;
}

void Collector::exec_seen(Followed& followed, bool announced) {
  for (const ProcessKey name : names_.names_of(followed.process->key())) without_uffd_handoff_.erase(name);
  followed.family = next_family_++;
  followed.forked_from = {};
  followed.track_at_ns = 0;
  followed.process->set_write_tracker(std::nullopt);
  followed.is_process_pending = false;
  followed.process->write_process(announced);
  followed.image_seen_ns = monotonic_ns();
  followed.process->policy().forget();
  followed.peaks = {};
  followed.teardown_ns = 0;  // an exit handler may have run it
  if (followed.slot != trace::kNoSlot) setup_.pool.view().slots[followed.slot].walked_rss_pages.store(0);
  // Most programs that a job starts on the way are short: they are walked when they are still there at
  // a tick, and when they ask for it at their end.
  if (followed.process->pid() == setup_.target) walk_process(followed, WalkTrigger::start);
}

void Collector::find_new_slots() {
  const trace::PoolView pool = setup_.pool.view();
  for (std::uint32_t index = 0; index < pool.header->slot_count; ++index) {
    const trace::ProcessSlot& slot = pool.slots[index];
    if (slot.state.load(std::memory_order_acquire) != trace::SlotState::live) continue;
    const ProcessKey name{.pid = slot.pid, .start_ticks = slot.start_ticks};
    const auto followed = followed_.find(names_.own_key(name));
    if (followed != followed_.end() && followed->second.slot == index) continue;
    const auto known_pid = names_.pid_of(name, monotonic_ns());
    if (!known_pid) continue;
    const ProcessKey key = names_.own_key(name);
    const auto found = followed_.find(key);
    if (found == followed_.end()) {
      if (ended_.contains(key)) continue;
      follow(key, *known_pid, nullptr);
      continue;
    }
    const std::uint32_t before = found->second.slot;
    if (before != trace::kNoSlot) {
      if (!has_lost_proc(pool.slots[before], slot)) continue;
      missed_by_ended_ += missed_snapshots(found->second);
      pool.slots[before].state.store(trace::SlotState::free, std::memory_order_release);
      found->second.walk_served = 0;
    }
    found->second.slot = index;
    found->second.process->write_process(true);
  }
}

// Once, so that also one without the shim is there before the first walk of who still lives.
void Collector::follow_target() {
  if (!started_ || target_sought_) return;
  target_sought_ = true;
  const auto ticks = start_ticks_of(setup_.target);
  if (ticks) follow({.pid = static_cast<std::uint32_t>(setup_.target), .start_ticks = *ticks}, setup_.target, nullptr);
}

void Collector::handle_process_events() {
  for (const ProcessEvent& event : drain_.take_process_events()) {
    // It may have said so before it is followed.
    if (event.kind == RecordKind::no_uffd_handoff) without_uffd_handoff_.insert(event.process);
    if (event.kind == RecordKind::advise) gave_up_lazily_.insert(event.process);
    const ProcessKey own = names_.own_key(event.process);
    if (event.kind == RecordKind::shared_file) unmapped_.note_made(event.file, own);
    const auto found = followed_.find(own);
    if (found == followed_.end()) continue;
    Followed& followed = found->second;
    switch (event.kind) {
      case RecordKind::attach: {
        bool exec = false;
        followed.process->poll(exec);
        if (exec) exec_seen(followed, true);
        break;
      }
      case RecordKind::exit:
        followed.exit_status = event.status;
        break;
      case RecordKind::teardown:
        if (event.status == trace::Teardown::undone)
          followed.teardown_ns = 0;
        else if ((event.status & ~trace::Teardown::unmoved) != trace::Teardown::script)
          followed.teardown_ns = monotonic_ns();
        break;
      case RecordKind::fork:
      case RecordKind::spawn: {
        if (event.kind == RecordKind::fork) followed.process->forget_what_is_own();
        // From a nested namespace the number means another process here: the child's slot will tell. This may also be
        // so while it is not known yet that the parent is nested.
        const pid_t child = own == event.process ? static_cast<pid_t>(event.pid) : 0;
        const auto stat = child > 0 ? stat_of(child) : std::nullopt;
        const bool is_child = stat && (stat->parent_pid == followed.process->pid() || followed.process->has_ended());
        // A parent that waits in vfork() goes on, and reports the child, right before it leaves their common memory.
        if (is_child && event.kind == RecordKind::spawn && shares_memory(*stat, child, followed))
          followed.children_scanned_ns = 0;
        else if (is_child)
          follow({.pid = event.pid, .start_ticks = stat->start_ticks}, child, &followed);
        if (event.kind == RecordKind::fork) schedule_walk(followed.family, WalkTrigger::fork);
        break;
      }
      case RecordKind::advise:
        gave_up_lazily_.erase(event.process);
        followed.process->expect_lazy_free();
        followed.process->policy().note_advice();
        break;
      case RecordKind::mark:
        if (event.asks_all) {
          asks_all_ = true;         // who has asked waits for it
          drain_.store_all_next();  // and may read the recording then
          break;
        }
        // A phase is everybody's: workers do what the main process names.
        for (const auto& [key, other] : followed_) schedule_walk(other.family, WalkTrigger::phase);
        break;
      default:
        break;
    }
  }
}

void Collector::scan_children(Followed& followed, std::int64_t now_ns) {
  // A traced process announces its children itself, but not those that it starts by raw system calls.
  const bool rarely = followed.slot != trace::kNoSlot || followed.process->thread_count() > kManyThreads;
  if (rarely && now_ns - followed.children_scanned_ns < kChildrenNs) return;
  followed.children_scanned_ns = now_ns;
  const pid_t pid = followed.process->pid();
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    const auto text = read_file(task.path().string() + "/children");
    if (!text) continue;
    for (std::string_view rest = *text; !rest.empty();) {
      const auto child = parse_number<pid_t>(take_word(rest));
      if (!child) break;
      if (*child == getpid()) continue;  // where the target is PID 1 or a subreaper, we are its child
      if (const auto known = by_pid_.find(*child); known != by_pid_.end() && followed_.contains(known->second))
        continue;
      const auto stat = stat_of(*child);
      // Of one that has ended before anybody saw it nothing is to be had.
      if (!stat || stat->has_ended() || shares_memory(*stat, *child, followed)) continue;
      follow({.pid = static_cast<std::uint32_t>(*child), .start_ticks = stat->start_ticks}, *child, &followed);
    }
  }
}

// False when it is gone.
bool Collector::poll_one(Followed& followed, std::int64_t now_ns) {
  ProcessFollow& process = *followed.process;
  bool exec = false;
  if (followed.slot != trace::kNoSlot)
    process.note_live_bytes(setup_.pool.view().slots[followed.slot].live_bytes.load(std::memory_order_relaxed));
  if (followed.has_ended || process.pid() == 0 || !process.poll(exec)) return false;
  if (exec) exec_seen(followed);
  if (process.polled_movement() > WalkPolicy::kMovePages) moved_ns_ = now_ns;
  return true;
}

// Walks at a large family take long. What is killed meanwhile is known from its last poll, also if it was born in this
// time.
void Collector::poll_between_walks() {
  const std::int64_t now_ns = beat();
  if (now_ns - polled_ns_ < kMovingTickNs) return;
  polled_ns_ = now_ns;
  drain(now_ns, {}, false);
  handle_process_events();
  for (auto& [_, followed] : followed_) poll_one(followed, now_ns);
}

void Collector::tick(std::int64_t now_ns) {
  const auto count = static_cast<std::int64_t>(followed_.size());
  polled_ns_ = now_ns;
  const bool flush = now_ns >= next_flush_ns_;
  const bool counters = now_ns >= next_counters_ns_;
  if (flush) next_flush_ns_ = now_ns + (in_container_ ? kContainerFlushNs : kFlushNs);
  if (counters) next_counters_ns_ = now_ns + kCountersNs;
  std::vector<ProcessKey> keys;
  std::int64_t group_shmem_bytes = 0;
  for (const auto& [key, followed] : followed_) keys.push_back(key);
  for (const ProcessKey key : keys) {
    Followed& followed = followed_.at(key);
    ProcessFollow& process = *followed.process;
    if (!poll_one(followed, now_ns)) continue;
    if (std::exchange(followed.is_process_pending, false)) process.write_process(true);
    const bool young = now_ns - followed.image_seen_ns < kYoungNs;
    if (const auto trigger = process.policy().observe(process.poll_point());
        trigger && !(young && trigger == WalkTrigger::start))
      schedule_walk(followed.family, *trigger);
    if (process.wants_peak_smaps(now_ns) && budget_.allows(now_ns, process.policy().expected_cpu_ns())) {
      budget_.spend(process.write_smaps(WalkTrigger::peak), false);
      budget_.spend(process.write_rollup(WalkTrigger::peak), false);
      process.write_status(WalkTrigger::peak);
    }
    if (followed.slot != trace::kNoSlot && followed.peaks.observe(process.poll_point()))
      setup_.pool.view().slots[followed.slot].stats_request.fetch_add(1, std::memory_order_relaxed);
    group_shmem_bytes += process.poll_cgroup(now_ns);
    if (flush) process.flush_polls();
    if (counters && followed.slot != trace::kNoSlot) process.write_counters(setup_.pool.view().slots[followed.slot]);
    scan_children(followed, now_ns);
  }
  walk_near_limits(now_ns);
  read_plateaus(now_ns);
  if (unmapped_.is_due(now_ns, group_shmem_bytes)) read_unmapped();
  if (counters) write_manifest();
  const bool moves = moved_ns_ != 0 && now_ns - moved_ns_ < kStillMovingNs;
  budget_.observe(now_ns, moves, busy_cores(now_ns));
  next_tick_ns_ = now_ns + std::max(moves ? kMovingTickNs : kTickNs, count * kTickPerProcessNs);
}

// That the followed processes keep busy, over the last half second.
double Collector::busy_cores(std::int64_t now_ns) {
  if (now_ns - busy_cores_.read_ns < kBusyCoresNs) return busy_cores_.count;
  static const auto ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::uint64_t ticks = 0;
  for (auto& [key, followed] : followed_) {
    const std::uint64_t now = followed.process->cpu_ticks();
    ticks += now - std::exchange(followed.cpu_ticks, now);
  }
  const double elapsed_s = static_cast<double>(now_ns - busy_cores_.read_ns) / 1e9;
  busy_cores_ = {now_ns, static_cast<double>(ticks) / ticks_per_s / elapsed_s};
  return busy_cores_.count;
}

void Collector::finish_ended() {
  const std::int64_t now_ns = monotonic_ns();
  std::set<ProcessKey> ended;
  for (auto& [key, followed] : followed_) {
    if (!followed.has_ended && followed.process->has_ended()) followed.has_ended = true;
    if (followed.has_ended) ended.insert(key);
  }
  if (ended.empty()) return;
  std::set<ProcessKey> names;
  for (const ProcessKey key : ended) names.merge(names_.names_of(key));
  drain(now_ns, names, false);
  handle_process_events();
  for (const ProcessKey key : ended) {
    Followed& followed = followed_.at(key);
    finish(followed);
    schedule_walk(followed.family, WalkTrigger::exit);
    by_pid_.erase(followed.process->pid());
    for (auto& [_, other] : followed_)  // they share with those before it what they shared with it
      if (other.forked_from == key) other.forked_from = followed.forked_from;
    followed_.erase(key);
    ended_.insert(key);
  }
}

// record waits for the end of the recording, or for this word that it comes later.
void Collector::report_survivors(std::int64_t now_ns) {
  if (job_ended_ns_ == 0 || followed_.empty() || by_pid_.contains(setup_.target)) return;
  const auto is_helper = [](const auto& followed) {
    const auto command = read_file(proc_path(followed.first.pid, "cmdline"));
    return !command || command->empty() || is_helper_command(split(*command, '\0'));  // of one that ends it is empty
  };
  if (now_ns - job_ended_ns_ < kHelpersEndNs && std::ranges::all_of(followed_, is_helper)) return;
  job_ended_ns_ = 0;
  store_all();  // record reads it now
  setup_.manifest.state = "incomplete: still running";
  write_manifest();
  send_faults();
  send_to_record(fmt::format("living {}\n", followed_.size()));
}

void Collector::finish(Followed& followed) {
  ProcessFollow& process = *followed.process;
  if (followed.is_process_pending) process.write_process(true);
  if (followed.slot != trace::kNoSlot) {
    trace::ProcessSlot& slot = setup_.pool.view().slots[followed.slot];
    process.note_live_bytes(slot.live_bytes.load(std::memory_order_relaxed));
    process.write_counters(slot);
    missed_by_ended_ += missed_snapshots(followed);
    if (names_.names_of(process.key()).contains({.pid = slot.pid, .start_ticks = slot.start_ticks}))
      slot.state.store(trace::SlotState::free, std::memory_order_release);
  }
  process.flush_polls();
  for (const ProcessKey name : names_.names_of(process.key())) {
    without_uffd_handoff_.erase(name);
    gave_up_lazily_.erase(name);
  }
  if (process.cgroup() || followed_.size() == 1) process.write_cgroup(true);
  if (process.cgroup()) hand_cgroup_on(followed);
  write_end(followed);
  bytes_of_ended_ += process.recorded_bytes();
  closed_.push_back(process.close());
}

void Collector::drain(std::int64_t now_ns, const std::set<ProcessKey>& ended, bool everything) {
  const auto target = [this, everything, now_ns](ProcessKey key) -> ProcessFollow* {
    // A process that has just ended is not in /proc any more, but its events still have a place.
    const auto known = followed_.find(names_.own_key(key));
    if (known != followed_.end()) return known->second.process.get();
    const auto pid = names_.pid_of(key, now_ns, everything);
    Followed* followed = pid ? follow(names_.own_key(key), *pid, nullptr) : nullptr;
    return followed == nullptr ? nullptr : followed->process.get();
  };
  drain_into(target, ended, everything);
}

// Shows waiting processes that the collector is alive; returns the time.
std::int64_t Collector::beat() {
  const std::int64_t now_ns = monotonic_ns();
  setup_.pool.view().header->reader_beat_ns.store(static_cast<std::uint64_t>(now_ns));
  return now_ns;
}

void Collector::drain_into(const Drain::Target& target, const std::set<ProcessKey>& ended, bool everything) {
  const std::int64_t begin_cpu_ns = thread_cpu_ns();
  const std::uint64_t begin_records = drain_.compact_records();
  drained_ns_ = beat();
  trace::PoolHeader& pool = *setup_.pool.view().header;
  pool.sealed_chunks.store(0, std::memory_order_relaxed);
  draining_ = true;
  const auto gone = [this](ProcessKey key, std::uint32_t tid) { return is_gone(key, tid); };
  drain_.round(drained_ns_, ended, everything, target, gone);
  draining_ = false;
  keep_chunks_ready();
  const std::uint64_t records = drain_.compact_records() - begin_records;
  busy_ = records >= kBusyRecords;
  // The job pays for the events that its programs write all the time; the budget is for walks.
  if (records > 0) context_.exact_cpu_ns += thread_cpu_ns() - begin_cpu_ns;
}

// Writers that find none reserve one for themselves, which takes them longer, and some must not.
void Collector::keep_chunks_ready() {
  const std::uint32_t ready = drain_.free_chunks();
  if (ready >= trace::kReadyChunks) return;
  const bool had_no_space = no_space_;
  no_space_ = !trace::add_chunks(setup_.pool.view(), trace::kReadyChunks - ready);
  drain_.set_can_grow(!no_space_);
  if (no_space_ && !had_no_space)
    log(fmt::format("no space for more events in {}: what finds no place there is lost", setup_.pool.path()));
}

// A writer will soon wait for a chunk: for a while the collector does nothing but drain.
void Collector::drain_while_busy() {
  const std::int64_t until_ns = monotonic_ns() + kBusyNs;
  while (busy_ && monotonic_ns() < until_ns) drain(monotonic_ns(), {}, false);
}

// In the middle of a walk, which takes long in a large process. Only for processes that are known: a walk of a new one
// must wait for the end of this one.
void Collector::drain_between() {
  const std::int64_t now_ns = beat();
  if (draining_ || drain_.compact_records() == 0 || now_ns - drained_ns_ < kBetweenNs) return;
  const auto target = [this](ProcessKey key) -> ProcessFollow* {
    const auto known = followed_.find(names_.own_key(key));
    return known == followed_.end() ? nullptr : known->second.process.get();
  };
  drain_into(target, {}, false);
}

void Collector::log(const std::string& line) {
  const std::string path = setup_.directory.path + "/collector.log";
  const Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd) write_fully(fd.get(), fmt::format("{} {}\n", rfc3339(clock_ns(CLOCK_REALTIME)), line));
}

bool Collector::write_manifest() {
  Manifest& manifest = setup_.manifest;
  const trace::PoolHeader& header = *setup_.pool.view().header;
  manifest.dropped_records = static_cast<std::int64_t>(header.dropped_records.load());
  manifest.dropped_bytes = static_cast<std::int64_t>(header.dropped_bytes.load());
  manifest.refused_slots = static_cast<std::int64_t>(header.refused_slots.load());
  manifest.collector_cpu_s = static_cast<double>(clock_ns(CLOCK_PROCESS_CPUTIME_ID)) / 1e9;
  const auto elapsed_s = static_cast<double>(monotonic_ns() - manifest.started_ns) / 1e9;
  manifest.collector_share = elapsed_s > 0 ? manifest.collector_cpu_s / elapsed_s : 0;
  manifest.write_faults = faults_.list();
  manifest.notes = setup_.metrics.faults();
  std::ranges::move(shortages(header), std::back_inserter(manifest.notes));
  const std::size_t growth_bytes = (closed_.size() + followed_.size()) * kClosedProcessBytes;
  const Status written = manifest_file_.write(render_manifest(manifest), growth_bytes);
  if (!written) faults_.lost_state(setup_.directory.path + "/manifest.json", written.failure());
  return written.ok();
}

// Events that have no process to go to are gone with the pool.
void Collector::note_what_is_left() {
  const std::uint64_t left_bytes = drain_.left_bytes();
  if (left_bytes > 0) log(fmt::format("{} bytes of events could not be stored", left_bytes));
  lost_at_end_ = lost_at_end_ || left_bytes > 0;
}

std::string Collector::end_state() const {
  if (const auto faults = faults_.list(); !faults.empty())
    return fmt::format("incomplete: not all of it could be written ({})", faults.front().error);
  return lost_at_end_ ? "incomplete: the last events could not be written, see collector.log" : "complete";
}

// Without room for the list of processes, at least how the command ended and what is missing.
void Collector::write_last_manifest() {
  setup_.manifest.processes = std::exchange(closed_, {});
  setup_.manifest.state = end_state();
  if (write_manifest()) return;
  setup_.manifest.processes.reset();
  setup_.manifest.state = end_state();
  write_manifest();
}

void Collector::close_recording() {
  end_memory_group();
  if (abandoned_) {
    std::error_code error;
    std::filesystem::remove_all(setup_.directory.path, error);
    return;
  }
  report_seen_end();  // record may have been stopped, or killed
  note_what_is_left();
  setup_.manifest.left_files = unmapped_.left_behind();
  setup_.manifest.ended_ns = monotonic_ns();
  write_last_manifest();
  manifest_file_.drop_reserve();
  send_faults();
  read_control();  // is record still there?
}

}  // namespace whyrss
