#include "collect/loop/process_follow.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "collect/cgroup/cgroup.h"
#include "collect/python/retaining_views.h"
#include "collect/read/descriptor_count.h"
#include "collect/read/huge_pages.h"
#include "collect/read/process_presence.h"
#include "collect/read/target_kind.h"
#include "recording/block_payload.h"
#include "recording/job_variables.h"
#include "support/clock.h"
#include "support/text.h"

namespace whyrss {
namespace {

using trace::FrameKind;

constexpr std::int64_t kSmapsGapNs = 30'000'000'000;
constexpr std::int64_t kLockedKilos = 8 * 1024;
constexpr std::int64_t kKnownNs = 10'000'000'000;
constexpr std::int64_t kRollupGapNs = 1'000'000'000;
constexpr std::int64_t kAtOnceNs = 1'000'000;  // readings of one moment
constexpr int kReadingTries = 3;
constexpr std::int64_t kHandlesGapNs = 1'000'000'000;
constexpr std::int64_t kHandlesGapCosts = 1000;  // of what a count took: a thousandth of a core at most
// A reading of a memory cgroup is due after so long, or when its usage has moved by this part.
constexpr std::int64_t kCgroupGapNs = 1'000'000'000;
constexpr std::int64_t kFullCgroupGapNs = 50'000'000;
constexpr std::int64_t kCgroupMovedPart = 50;

// Not in the headers of Debian 12: PIDFD_GET_INFO with PIDFD_INFO_EXIT tells how a process ended also when its parent
// has reaped it (Linux 6.15, include/uapi/linux/pidfd.h).
struct PidfdInfo {
  std::uint64_t mask, cgroup_id;
  std::array<std::uint32_t, 11> ids;
  std::int32_t exit_status;
  static constexpr std::uint64_t kExit = 1 << 3;
  static const unsigned long kGet;
};
static_assert(sizeof(PidfdInfo) == 64);
const unsigned long PidfdInfo::kGet = _IOWR(0xFF, 11, PidfdInfo);

std::string dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// start_ticks count CLOCK_BOOTTIME, recordings use CLOCK_MONOTONIC.
std::int64_t monotonic_of(std::uint64_t start_ticks) {
  static const std::int64_t ticks_per_s = sysconf(_SC_CLK_TCK);
  const std::int64_t suspended_ns = clock_ns(CLOCK_BOOTTIME) - monotonic_ns();
  return static_cast<std::int64_t>(start_ticks) * (1'000'000'000 / ticks_per_s) - suspended_ns;
}

// Whether a memory cgroup may hold something else than `age_ns` before.
bool has_moved(const CgroupMemory& cgroup, const CgroupFigures& before, std::int64_t age_ns) {
  if (age_ns >= kCgroupGapNs) return true;
  const auto usage_before = before.find("usage_bytes");
  const auto usage = read_usage(cgroup);
  if (!usage || usage_before == before.end()) return false;
  const std::int64_t whole = cgroup.limit_bytes ? std::min(*cgroup.limit_bytes, *usage) : *usage;
  if (std::abs(*usage - usage_before->second) >= whole / kCgroupMovedPart) return true;
  // Usage stays at the limit while memory takes the place of file cache.
  const bool full = cgroup.limit_bytes && *usage >= *cgroup.limit_bytes - *cgroup.limit_bytes / kCgroupMovedPart;
  return full && age_ns >= kFullCgroupGapNs;
}

std::vector<std::string> command_of(const std::string& cmdline) {
  return split(cmdline, '\0');  // the last argument ends with a NUL too
}

// Whether RSS may have been higher between two polls than at either: it has fallen, or took more faults than it grew
// by.
bool may_have_peaked(const PollPoint& before, const PollPoint& now) {
  const std::uint64_t grown = now.rss_pages - std::min(now.rss_pages, before.rss_pages);
  const std::uint64_t fallen = before.rss_pages - std::min(now.rss_pages, before.rss_pages);
  const std::uint64_t faults = now.faults - std::min(now.faults, before.faults);
  return std::max(fallen, faults - std::min(faults, grown)) > WalkPolicy::kMovePages;
}

// Which of them are dirty smaps tells.
std::uint64_t pages_to_write_back(const PageWalk& walk) {
  constexpr std::uint32_t kSharedWrite = trace::VmaPerms::shared | trace::VmaPerms::write;
  std::uint64_t pages = 0;
  for (const WalkedVma& vma : walk.vmas) {
    if (vma.vma.backing != trace::Backing::file || (vma.vma.perms & kSharedWrite) != kSharedWrite) continue;
    for (const trace::WalkRun& run : vma.runs)
      if (is_counted(run.bits)) pages += run.page_count;
  }
  return pages;
}

// Private pages that are mapped more than once.
std::uint64_t shared_private_pages(const PageWalk& walk) {
  if (walk.is_lone) return 0;
  std::uint64_t pages = 0;
  for (const WalkedVma& vma : walk.vmas)
    for (const trace::WalkRun& run : vma.runs)
      if (is_counted(run.bits) && (run.bits & (trace::PageBits::file | trace::PageBits::exclusive)) == 0)
        pages += run.page_count;
  return pages;
}

}  // namespace

std::string ProcessFollow::proc(const char* file) const { return fmt::format("/proc/{}/{}", pid_, file); }

std::string ProcessFollow::file(const char* name) const {
  return fmt::format("{}/{}/{}", context_->directory, directory_name(), name);
}

std::string ProcessFollow::directory_name() const {
  return fmt::format("{}.{}.{}", context_->host, key_.pid, key_.start_ticks);
}

ClosedProcess ProcessFollow::close() {
  for (ProcessFile* file : {&events_, &pages_})
    if (const Status made = file->make(); !made) context_->faults->lost_state(file->path(), made.failure());
  return {.directory = directory_name(), .events_frames = events_.frame_count(), .pages_frames = pages_.frame_count()};
}

FileIdentity ProcessFollow::identity(trace::FileKind kind) const {
  return {.kind = kind, .session = context_->session, .pid = key_.pid, .start_ticks = key_.start_ticks};
}

ProcessFollow::ProcessFollow(const FollowContext& context, ProcessKey key, pid_t pid)
    : context_(&context),
      key_(key),
      pid_(pid),
      born_ns_(monotonic_of(key.start_ticks)),
      // Without it (old kernel, no descriptors left) the end is seen at the next poll.
      pidfd_(pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1),
      events_(file("events.zst"), identity(trace::FileKind::events)),
      pages_(file("pages.zst"), identity(trace::FileKind::pages)),
      policy_(context.share),
      smaps_ns_(monotonic_ns()) {}

bool ProcessFollow::has_ended() const {
  if (pid_ == 0) return true;
  if (pidfd_) {
    pollfd entry{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, 0) == 1;
  }
  const auto stat = read_stat(pid_);
  if (!stat) return says_gone(errno);
  return stat->start_ticks != key_.start_ticks || stat->has_ended();
}

void ProcessFollow::notice_end() {
  if (gone_ns_ != 0 || pid_ == 0) return;
  const auto stat = read_stat(pid_);
  bool is_gone = stat ? stat->start_ticks != key_.start_ticks : says_gone(errno);
  // A main thread that has ended has no memory either, whatever its other threads do.
  if (stat && !is_gone && stat->thread_count <= 1) {
    const auto memory = read_memory();
    is_gone = memory && memory->size == 0;
  }
  if (is_gone) gone_ns_ = monotonic_ns();
}

// Again where it took long: on a busy machine this process may have been held, and the other one not.
std::optional<ProcessFollow::Reading> ProcessFollow::read_now() const {
  for (int tries_left = kReadingTries;; --tries_left) {
    const std::int64_t begin_ns = monotonic_ns();
    const auto stat = read_stat(pid_);
    const auto memory = read_memory();
    const std::int64_t end_ns = monotonic_ns();
    if (!stat || !memory) return std::nullopt;
    if (end_ns - begin_ns < kAtOnceNs || tries_left == 1) return Reading{*stat, *memory, end_ns};
  }
}

bool ProcessFollow::poll(bool& exec_seen) {
  exec_seen = false;
  const auto reading = read_now();
  if (!reading) return false;
  const auto& [stat, memory, now_ns] = *reading;
  if (memory.size == 0 || stat.start_ticks != key_.start_ticks || stat.has_ended()) return false;
  const Image image{.start_code = stat.start_code, .start_stack = stat.start_stack};
  if (image == Image{} && image_.start_stack != 0) return false;  // leaving: its memory is gone already
  // A first poll in the middle of an exec found neither.
  exec_seen = last_poll_.time_ns != 0 && image != image_;
  image_ = image;
  thread_count_ = stat.thread_count;
  comm_ = stat.comm;
  parent_pid_ = stat.parent_pid;
  polls_.push_back({.time_ns = static_cast<std::uint64_t>(now_ns),
                    .rss_pages = memory.resident,
                    .shared_pages = memory.shared,
                    .minor_faults = stat.minor_faults,
                    .major_faults = stat.major_faults});
  const PollPoint point{.time_ns = now_ns,
                        .rss_pages = memory.resident,
                        .faults = stat.minor_faults + stat.major_faults,
                        .live_bytes = live_bytes_};
  if (may_have_peaked(last_poll_, point)) read_high_water();
  if (deferred_process_ && !exec_seen) write_process(*deferred_process_);
  polled_movement_ = movement(point, last_poll_);
  cpu_ticks_ = stat.cpu_ticks;
  last_poll_ = point;
  count_handles(now_ns);
  return true;
}

void ProcessFollow::read_high_water() {
  const auto status = read_file(proc("status"));
  const auto kilos = status ? status_value(*status, "VmHWM") : std::nullopt;
  high_water_kilos_ = std::max(high_water_kilos_, kilos.value_or(0));
}

std::int64_t ProcessFollow::walk(trace::WalkTrigger trigger, std::uint64_t liveness, Relatives relatives,
                                 std::optional<WriteTracker::Huge> track, ForkCount forks) {
  const std::int64_t begin_cpu_ns = thread_cpu_ns() - context_->exact_cpu_ns;
  // Who else maps a file's pages may have changed after a fork or an end, and at any time by and by.
  using trace::WalkTrigger;
  const bool all_anew = trigger == WalkTrigger::start || trigger == WalkTrigger::request ||
                        trigger == WalkTrigger::exit || monotonic_ns() - known_ns_ > kKnownNs;
  if (all_anew) known_ = {};
  std::optional<WriteTracker::Pass> pass;
  if (track && write_tracker_) pass.emplace(write_tracker_->pass(*track));
  if (write_tracker_) relatives = Relatives::possible;  // pages may still be protected
  auto walk =
      walk_pages(pid_, trigger, context_->methods, *context_->resolver, known_, relatives, pass ? &*pass : nullptr);
  if (walk) {
    if (pass) write_tracked(*pass, *walk);
    std::optional<LazyFreeReading> lazy_free;
    if (may_have_lazy_free_) lazy_free = read_lazy_free(pid_, *walk);
    // One that takes its memory down meanwhile would seem to have none left.
    if (may_have_lazy_free_ && !lazy_free && !has_memory()) walk->header.flags |= trace::WalkFlags::partial;
    const bool partial = (walk->header.flags & trace::WalkFlags::partial) != 0;
    // A torn walk is worth something only where there is no other.
    const bool stored = (!partial || !has_walk_) && append(FrameKind::walk, encode_walk(*walk));
    if (!partial) {
      if (context_->methods.between) context_->methods.between();
      if (stored && liveness != 0) write_liveness(*walk, liveness, forks);
      if (stored && lazy_free) write_lazy_free(*lazy_free);
      if (const auto files = stored ? file_sizes_.changes(*walk, *context_->resolver, pid_, all_anew) : std::nullopt)
        append_json(FrameKind::file_sizes, dump(*files));
      has_walk_ = true;
      mapping_count_ = static_cast<std::int64_t>(walk->vmas.size());
      // A walk that follows growth reads pools in turn, and searches for views now and then.
      const bool is_whole = !pools_.left_some() && !(view_policy_.is_behind(walk->counted_pages) && has_views(*walk));
      walked_rss_pages_ = is_whole ? walk->counted_pages : 0;
      written_file_pages_ = pages_to_write_back(*walk);
      shared_pages_ = shared_private_pages(*walk);
      if (all_anew) known_ns_ = monotonic_ns();
      known_ = known_memory(*walk);
      walked_minor_faults_ = walk->minor_faults_before;
    }
  }
  const std::int64_t cost_ns = thread_cpu_ns() - context_->exact_cpu_ns - begin_cpu_ns;
  PollPoint seen = last_poll_;
  if (walk)
    seen = {.time_ns = static_cast<std::int64_t>(walk->header.begin_ns),
            .rss_pages = walk->header.statm_before_pages,
            .faults = walk->minor_faults_before + walk->major_faults_before,
            .live_bytes = live_bytes_};
  // Walks that follow growth do without.
  policy_.walked(seen, cost_ns - pools_.take_extra_cpu_ns(), pools_.left_some());
  return cost_ns;
}

void ProcessFollow::write_tracked(WriteTracker::Pass& pass, const PageWalk& walk) {
  if (const auto runs = pass.take_runs())
    append(FrameKind::tracked, encode_tracked(walk.header.begin_ns, *runs));
  else
    write_tracker_.reset();
}

void ProcessFollow::write_liveness(const PageWalk& walk, std::uint64_t table, ForkCount forks) {
  if ((walk.header.flags & trace::WalkFlags::smaps_only) != 0) return;  // says of no page that it is there
  const TargetMemory memory(pid_, walk.is_lone ? std::optional(forks) : std::nullopt);
  using trace::WalkTrigger;
  const WalkTrigger trigger = walk.header.trigger;
  const bool follows_growth =
      trigger == WalkTrigger::growth || trigger == WalkTrigger::advise || trigger == WalkTrigger::limit;
  Liveness liveness = read_liveness(memory, table, walk, pools_,
                                    follows_growth ? PoolReader::Extent::in_turn : PoolReader::Extent::all);
  write_views(walk, memory, liveness);
  write_huge_pages(walk, memory);
  if (!append(FrameKind::liveness, liveness_frames_.encode(std::move(liveness)))) liveness_frames_.restart();
}

void ProcessFollow::write_views(const PageWalk& walk, const TargetMemory& memory, const Liveness& liveness) {
  if (!view_policy_.is_due(walk.header.trigger, monotonic_ns(), walk.counted_pages) || !has_views(walk)) return;
  const std::int64_t begin_cpu_ns = thread_cpu_ns();
  const std::vector<trace::RetainingView> views = find_retaining_views(memory, liveness, has_tensors(walk));
  const trace::ViewsHeader header{.walk_end_ns = walk.header.end_ns};
  std::vector<std::byte> payload(sizeof header + views.size() * sizeof(trace::RetainingView));
  std::memcpy(payload.data(), &header, sizeof header);
  if (!views.empty()) std::memcpy(payload.data() + sizeof header, views.data(), payload.size() - sizeof header);
  append(FrameKind::views, payload);
  view_policy_.probed(monotonic_ns(), thread_cpu_ns() - begin_cpu_ns, walk.counted_pages);
}

void ProcessFollow::write_huge_pages(const PageWalk& walk, const TargetMemory& memory) {
  // A process that leaves waits a few milliseconds only: then the last inspection must do, unless it grew much since.
  const bool leaves = walk.header.trigger == trace::WalkTrigger::exit;
  const trace::WalkTrigger trigger = leaves ? trace::WalkTrigger::growth : walk.header.trigger;
  if (!huge_policy_.is_due(trigger, monotonic_ns(), walk.counted_pages) || !has_huge_pages(walk)) return;
  const std::int64_t begin_cpu_ns = thread_cpu_ns();
  append(FrameKind::huge, inspect_huge_pages(memory, walk));
  huge_policy_.probed(monotonic_ns(), thread_cpu_ns() - begin_cpu_ns, walk.counted_pages);
}

void ProcessFollow::write_lazy_free(const LazyFreeReading& reading) {
  if (reading.any) append(FrameKind::lazy_free, reading.payload);
  may_have_lazy_free_ = reading.any;
}

// False from the moment on at which a leaving process has given it up.
std::optional<MemoryPages> ProcessFollow::read_memory() const {
  const auto text = read_line_file(proc("statm"));
  return text ? parse_statm(*text) : std::nullopt;
}

bool ProcessFollow::has_memory() const {
  const auto memory = read_memory();
  return memory && memory->size > 0;
}

std::int64_t ProcessFollow::write_text(FrameKind kind, const char* file, trace::WalkTrigger moment) {
  const std::int64_t begin_cpu_ns = thread_cpu_ns();
  const auto text = read_file(proc(file));
  if (text && !text->empty()) {
    const trace::TextHeader header{.time_ns = static_cast<std::uint64_t>(monotonic_ns()),
                                   .moment = static_cast<std::uint32_t>(moment),
                                   .text_bytes = static_cast<std::uint32_t>(text->size())};
    std::vector<std::byte> payload(sizeof header + text->size());
    std::memcpy(payload.data(), &header, sizeof header);
    std::memcpy(payload.data() + sizeof header, text->data(), text->size());
    append(kind, payload);
    if (kind == FrameKind::rollup) locked_kilos_ = status_value(*text, "Locked").value_or(0);
  }
  return thread_cpu_ns() - begin_cpu_ns;
}

std::int64_t ProcessFollow::write_smaps(trace::WalkTrigger moment) {
  smaps_rss_pages_ = last_poll_.rss_pages;
  smaps_ns_ = totals_ns_ = monotonic_ns();
  const std::int64_t cost_ns = write_text(FrameKind::smaps, "smaps", moment);
  rollups_.read(point_at(totals_ns_), cost_ns);
  return cost_ns;
}

std::int64_t ProcessFollow::write_rollup(trace::WalkTrigger moment) {
  totals_ns_ = monotonic_ns();
  std::int64_t cost_ns = write_text(FrameKind::rollup, "smaps_rollup", moment);
  // Only smaps tells which mappings are locked, and a process that is killed is not read at its end.
  if (std::abs(locked_kilos_ - smaps_locked_kilos_) > std::max(kLockedKilos, smaps_locked_kilos_ / 10)) {
    smaps_locked_kilos_ = locked_kilos_;
    cost_ns += write_text(FrameKind::smaps, "smaps", moment);
  }
  rollups_.read(point_at(totals_ns_), cost_ns);
  return cost_ns;
}

// As it was at the last poll.
PollPoint ProcessFollow::point_at(std::int64_t now_ns) const {
  PollPoint point = last_poll_;
  point.time_ns = now_ns;
  return point;
}

void ProcessFollow::write_status(trace::WalkTrigger moment) {
  write_text(FrameKind::status, "status", moment);
  count_handles(next_count_ns_);
  write_handles();
}

// Before Linux 6.2 each descriptor is read, and there may be very many. A process that has none any more is leaving.
void ProcessFollow::count_handles(std::int64_t now_ns) {
  if (now_ns < next_count_ns_) return;
  const std::int64_t begin_ns = monotonic_ns();
  if (const auto count = count_descriptors(pid_); count && (*count > 0 || !descriptor_count_)) {
    descriptor_count_ = *count;
    counted_ns_ = begin_ns;
    if (*count >= most_descriptors_) {
      most_descriptors_ = *count;
      most_descriptors_ns_ = begin_ns;
    }
  }
  const std::int64_t cost_ns = monotonic_ns() - begin_ns;
  next_count_ns_ = begin_ns + std::max(kHandlesGapNs, kHandlesGapCosts * cost_ns);
}

// Of a process that has ended: as they were counted last.
void ProcessFollow::write_handles() {
  const bool first = !has_handles_;
  const char* const moment = first ? "first" : "last";
  nlohmann::json json{{fmt::format("mappings_{}", moment), mapping_count_}};
  if (descriptor_count_) {
    json[fmt::format("descriptors_{}", moment)] = *descriptor_count_;
    if (!first) {
      json["descriptors_last_ns"] = counted_ns_;
      json["descriptors_peak"] = most_descriptors_;
      json["descriptors_peak_ns"] = most_descriptors_ns_;
    }
  }
  append_json(FrameKind::counters, dump(json));
  has_handles_ = true;
  handles_ns_ = counted_ns_;
}

bool ProcessFollow::wants_peak_smaps(std::int64_t now_ns) const {
  return last_poll_.rss_pages > smaps_rss_pages_ + smaps_rss_pages_ / 10 && now_ns - smaps_ns_ >= kSmapsGapNs;
}

bool ProcessFollow::wants_rollup(std::int64_t now_ns) const { return now_ns - totals_ns_ >= kRollupGapNs; }

std::string ProcessFollow::cgroup_name() const {
  const auto text = read_file(proc("cgroup"));
  return text ? *text : std::string();
}

void ProcessFollow::write_cgroup(bool after_end) {
  // An ended process is in no group any more: the one that it was in is read again.
  if (!cgroup_) cgroup_ = read_cgroup(pid_);
  const std::string& made = context_->memory_group;
  if (!made.empty() && (!cgroup_ || !cgroup_->limit_bytes)) cgroup_ = cgroup_at(made);  // it had ended before
  if (!cgroup_) return;
  cgroup_ns_ = monotonic_ns();
  CgroupFigures figures = read_figures(*cgroup_);
  nlohmann::json json = figures;
  json["version"] = cgroup_->version;
  json["path"] = cgroup_->path;
  if (cgroup_->limit_bytes) json["limit_bytes"] = *cgroup_->limit_bytes;
  if (cgroup_->kills_all) json["kills_all"] = true;
  if (after_end) json["after_end"] = true;
  if (cgroup_->path == context_->memory_group) json["made_by_record"] = true;
  append_json(FrameKind::cgroup, dump(json));
  cgroup_figures_ = std::move(figures);
}

std::int64_t ProcessFollow::poll_cgroup(std::int64_t now_ns) {
  if (!cgroup_) return 0;
  if (has_moved(*cgroup_, cgroup_figures_, now_ns - cgroup_ns_)) {
    cgroup_ns_ = now_ns;
    if (read_figures(*cgroup_) != cgroup_figures_) write_cgroup(false);
  }
  const auto shmem = cgroup_figures_.find("shmem_bytes");
  return shmem == cgroup_figures_.end() ? 0 : shmem->second;
}

bool ProcessFollow::is_near_limit(std::int64_t now_ns) {
  const auto headroom = cgroup_ ? read_headroom(*cgroup_) : std::nullopt;
  if (!headroom) return false;
  const std::int64_t soon_bytes = limit_.observe(now_ns, headroom->bytes);
  return headroom->bytes < soon_bytes && with_cache_bytes(*headroom) < soon_bytes;
}

void ProcessFollow::write_process(bool announced) {
  // The kernel lays out a new program's arguments before it sets where its code is. A parent that waits in vfork() goes
  // on before both, and reports the child.
  const bool in_exec = last_poll_.time_ns != 0 && image_.start_code == 0;
  if (in_exec && !deferred_process_) {
    deferred_process_ = announced;
    return;
  }
  deferred_process_.reset();
  nlohmann::json json{{"pid", key_.pid},
                      {"start_ticks", key_.start_ticks},
                      {"born_ns", born_ns_},
                      {"traced", announced ? "full" : "kernel"}};
  // Of one that was too short-lived to be seen its own attach record says the rest.
  if (last_poll_.time_ns != 0) {
    const auto cmdline = read_file(proc("cmdline"));
    const auto status = read_file(proc("status"));
    json["parent"] = parent_pid_;
    json["comm"] = comm_;
    const std::string exe = read_link(proc("exe"));  // "": not ours to read
    json["exe"] = exe;
    json["command"] = cmdline && !cmdline->empty() ? command_of(*cmdline) : std::vector<std::string>{};
    const auto environment = read_file(proc("environ"));
    if (const auto variables = job_variables(environment ? *environment : std::string()); !variables.empty())
      json["environment"] = variables;
    // Why it may never announce itself; a slot may be of the program before.
    if (environment) json["preload"] = preload_of(*environment);
    if (const std::string path = environment ? variable_of(*environment, "PYTHONPATH") : ""; !path.empty())
      if (const auto& folders = context_->package_folders->of(pid_, path); !folders.empty())
        json["package_folders"] = folders;
    if (!announced && !exe.empty()) json["unfit"] = describe(inspect_target(proc("exe")).kind);
    json["uid"] = status ? status_value(*status, "Uid").value_or(-1) : -1;
  }
  append_json(FrameKind::process, dump(json));
}

void ProcessFollow::write_counters(const trace::ProcessSlot& slot) {
  const auto value = [](const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  append_json(FrameKind::counters, dump({{"dropped_records", value(slot.dropped_records)},
                                         {"small_allocations", value(slot.small_allocations)},
                                         {"small_allocated_bytes", value(slot.small_allocated_bytes)},
                                         {"small_releases", value(slot.small_releases)},
                                         {"large_allocations", value(slot.large_allocations)},
                                         {"live_bytes", slot.live_bytes.load(std::memory_order_relaxed)},
                                         {"stacks_truncated", value(slot.stacks_truncated)},
                                         {"looks_missed", slot.walks_missed.load(std::memory_order_relaxed)}}));
}

void ProcessFollow::write_unmapped(const nlohmann::json& payload) { append_json(FrameKind::unmapped, dump(payload)); }

std::string ProcessFollow::end_signal() const {
  int status = 0;
  if (const auto stat = pid_ > 0 ? read_stat(pid_) : std::nullopt;
      stat && stat->start_ticks == key_.start_ticks && stat->has_ended())
    status = stat->exit_status;
  PidfdInfo info{};
  info.mask = PidfdInfo::kExit;
  if (status == 0 && pidfd_ && ioctl(pidfd_.get(), PidfdInfo::kGet, &info) == 0 && (info.mask & PidfdInfo::kExit) != 0)
    status = info.exit_status;
  if (!WIFSIGNALED(status)) return {};
  const char* name = sigabbrev_np(WTERMSIG(status));
  return name == nullptr ? std::string() : fmt::format("SIG{}", name);
}

void ProcessFollow::write_ended(const std::string& how, std::optional<int> status, const std::string& signal,
                                const std::vector<KernelLine>& kernel_lines) {
  if (deferred_process_) write_process(*deferred_process_);
  if (has_handles_ && counted_ns_ > handles_ns_) write_handles();
  nlohmann::json json{{"ended_ns", gone_ns_ != 0 ? gone_ns_ : monotonic_ns()}, {"how", how}};
  if (high_water_kilos_ > 0) json["high_water_kilos"] = high_water_kilos_;
  if (max_rss_kib_ > 0) json["max_rss_kib"] = max_rss_kib_;
  if (status) json["status"] = *status;
  if (!signal.empty()) json["signal"] = signal;
  for (const KernelLine& line : kernel_lines)
    json["kernel"].push_back({{"time_ns", line.time_us * 1000}, {"text", line.text}});
  append_json(FrameKind::ended, dump(json));
}

void ProcessFollow::note_live_bytes(std::int64_t live_bytes) {
  const std::int64_t now_ns = gone_ns_ != 0 ? gone_ns_ : monotonic_ns();
  if (live_bytes != live_bytes_)
    live_polls_.push_back({.time_ns = static_cast<std::uint64_t>(now_ns), .live_bytes = live_bytes});
  live_bytes_ = live_bytes;
}

void ProcessFollow::flush_polls() {
  const auto flush = [this](FrameKind kind, auto& polls) {
    if (!polls.empty()) append(kind, std::as_bytes(std::span(polls)));
    polls.clear();
  };
  flush(FrameKind::polls, polls_);
  flush(FrameKind::live_polls, live_polls_);
}

Status ProcessFollow::append_segments(std::int64_t now_ns, std::span<const std::byte> payload) {
  Status stored = events_.append(FrameKind::segment, static_cast<std::uint64_t>(now_ns), payload);
  if (stored) context_->faults->wrote();
  return stored;
}

Status ProcessFollow::append_blocks(std::int64_t now_ns, std::span<const std::byte> payload) {
  Status stored =
      events_.append(FrameKind::blocks, static_cast<std::uint64_t>(now_ns), payload, payload_parts(payload));
  if (stored) context_->faults->wrote();
  return stored;
}

bool ProcessFollow::append(FrameKind kind, std::span<const std::byte> payload) {
  const Status stored = pages_.append(kind, static_cast<std::uint64_t>(monotonic_ns()), payload);
  if (stored)
    context_->faults->wrote();
  else
    context_->faults->lost_frame(pages_.path(), kind, stored.failure());
  return stored.ok();
}

void ProcessFollow::append_json(FrameKind kind, const std::string& text) {
  append(kind, std::as_bytes(std::span(text)));
}

}  // namespace whyrss
