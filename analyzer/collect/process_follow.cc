#include "collect/process_follow.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "collect/array_views.h"
#include "collect/cgroup.h"
#include "procfs/process_stat.h"
#include "recording/block_payload.h"
#include "support/clock.h"
#include "support/text.h"

namespace whyrss {
namespace {

using trace::FrameKind;

constexpr std::int64_t kSmapsGapNs = 30'000'000'000;
constexpr std::int64_t kKnownNs = 10'000'000'000;
constexpr std::int64_t kRollupGapNs = 1'000'000'000;
constexpr std::int64_t kComplaintGapNs = 60'000'000'000;

std::string dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// start_ticks count CLOCK_BOOTTIME, recordings use CLOCK_MONOTONIC.
std::int64_t born_ns(std::uint64_t start_ticks) {
  static const std::int64_t ticks_per_s = sysconf(_SC_CLK_TCK);
  const std::int64_t suspended_ns = clock_ns(CLOCK_BOOTTIME) - monotonic_ns();
  return static_cast<std::int64_t>(start_ticks) * (1'000'000'000 / ticks_per_s) - suspended_ns;
}

std::vector<std::string> command_of(const std::string& cmdline) {
  return split(cmdline, '\0');  // the last argument ends with a NUL too
}

std::optional<ProcessStat> read_stat(pid_t pid) {
  const auto text = read_file(fmt::format("/proc/{}/stat", pid));
  return text ? parse_process_stat(*text) : std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> start_ticks_of(pid_t pid) {
  const auto stat = read_stat(pid);
  if (!stat) return std::nullopt;
  return stat->start_ticks;
}

std::string ProcessFollow::proc(const char* file) const { return fmt::format("/proc/{}/{}", pid_, file); }

Result<ProcessFollow> ProcessFollow::begin(const FollowContext& context, ProcessKey key, pid_t pid) {
  ProcessFollow process(context, key, pid);
  const std::string directory = fmt::format("{}/{}.{}.{}", context.directory, context.host, key.pid, key.start_ticks);
  if (mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) return system_error("cannot create", directory);
  FileIdentity identity{
      .kind = trace::FileKind::events, .session = context.session, .pid = key.pid, .start_ticks = key.start_ticks};
  auto events = FrameWriter::create(directory + "/events.zst", identity);
  if (!events) return Error{events.error()};
  identity.kind = trace::FileKind::pages;
  auto pages = FrameWriter::create(directory + "/pages.zst", identity);
  if (!pages) return Error{pages.error()};
  process.events_ = std::move(*events);
  process.pages_ = std::move(*pages);
  process.smaps_ns_ = monotonic_ns();
  // Without it (old kernel, no descriptors left) the end is seen at the next poll.
  if (pid > 0) process.pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  return process;
}

bool ProcessFollow::has_ended() const {
  if (pid_ == 0) return true;
  if (pidfd_) {
    pollfd entry{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, 0) == 1;
  }
  const auto stat = read_stat(pid_);
  return !stat || stat->start_ticks != key_.start_ticks || stat->state == 'Z' || stat->state == 'X';
}

bool ProcessFollow::poll(std::int64_t now_ns, bool& exec_seen) {
  exec_seen = false;
  const auto stat = read_stat(pid_);
  const auto statm_text = read_file(proc("statm"));
  if (!stat || !statm_text || stat->start_ticks != key_.start_ticks || stat->state == 'Z' || stat->state == 'X')
    return false;
  const auto memory = parse_statm(*statm_text);
  if (!memory) return false;
  if (start_stack_ != 0 && stat->start_stack == 0) return false;  // leaving: its memory is gone already
  exec_seen = start_stack_ != 0 && (stat->start_stack != start_stack_ || stat->start_code != start_code_);
  start_code_ = stat->start_code;
  start_stack_ = stat->start_stack;
  thread_count_ = stat->thread_count;
  polls_.push_back({.time_ns = static_cast<std::uint64_t>(now_ns),
                    .rss_pages = memory->resident,
                    .shared_pages = memory->shared,
                    .minor_faults = stat->minor_faults,
                    .major_faults = stat->major_faults});
  last_poll_ = {.time_ns = now_ns,
                .rss_pages = memory->resident,
                .faults = stat->minor_faults + stat->major_faults,
                .live_bytes = live_bytes_};
  return true;
}

std::int64_t ProcessFollow::walk(trace::WalkTrigger trigger, std::uint64_t liveness,
                                 std::optional<WriteTracker::Huge> track) {
  const std::int64_t begin_cpu_ns = thread_cpu_ns() - context_->exact_cpu_ns;
  // Who else maps a file's pages may have changed after a fork or an end, and at any time by and by.
  const bool all_anew = trigger == trace::WalkTrigger::request || trigger == trace::WalkTrigger::exit ||
                        monotonic_ns() - known_ns_ > kKnownNs;
  if (all_anew) known_.clear();
  std::optional<WriteTracker::Pass> pass;
  if (track && write_tracker_) pass.emplace(write_tracker_->pass(*track));
  auto walk = walk_pages(pid_, trigger, context_->methods, *context_->resolver, known_, pass ? &*pass : nullptr);
  if (walk) {
    if (pass) write_tracked(*pass, *walk);
    const bool partial = (walk->header.flags & trace::WalkFlags::partial) != 0;
    // A torn walk is worth something only where there is no other.
    const bool stored = (!partial || !has_walk_) && append(FrameKind::walk, encode_walk(*walk));
    if (!partial) {
      if (context_->methods.between) context_->methods.between();
      if (stored && liveness != 0) write_liveness(*walk, liveness);
      has_walk_ = true;
      walked_rss_pages_ = walk->counted_pages;
      if (all_anew) known_ns_ = monotonic_ns();
      known_ = known_pages(*walk);
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
  policy_.walked(seen, cost_ns);
  return cost_ns;
}

void ProcessFollow::write_tracked(WriteTracker::Pass& pass, const PageWalk& walk) {
  if (const auto runs = pass.take_runs())
    append(FrameKind::tracked, encode_tracked(walk.header.begin_ns, *runs));
  else
    write_tracker_.reset();
}

void ProcessFollow::write_liveness(const PageWalk& walk, std::uint64_t table) {
  if ((walk.header.flags & trace::WalkFlags::smaps_only) != 0) return;  // says of no page that it is there
  const TargetMemory memory(pid_);
  Liveness liveness = read_liveness(memory, table, walk);
  write_views(walk, memory, liveness);
  if (!append(FrameKind::liveness, liveness_frames_.encode(std::move(liveness)))) liveness_frames_.restart();
}

void ProcessFollow::write_views(const PageWalk& walk, const TargetMemory& memory, const Liveness& liveness) {
  if (!view_looks_.is_due(walk.header.trigger, monotonic_ns(), walk.counted_pages) || !has_numpy(walk)) return;
  const std::int64_t begin_cpu_ns = thread_cpu_ns();
  const std::vector<trace::RetainingView> views = find_retaining_views(memory, liveness);
  const trace::ViewsHeader header{.walk_end_ns = walk.header.end_ns};
  std::vector<std::byte> payload(sizeof header + views.size() * sizeof(trace::RetainingView));
  std::memcpy(payload.data(), &header, sizeof header);
  if (!views.empty()) std::memcpy(payload.data() + sizeof header, views.data(), payload.size() - sizeof header);
  append(FrameKind::views, payload);
  view_looks_.looked(monotonic_ns(), thread_cpu_ns() - begin_cpu_ns, walk.counted_pages);
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
  }
  return thread_cpu_ns() - begin_cpu_ns;
}

std::int64_t ProcessFollow::write_smaps(trace::WalkTrigger moment) {
  smaps_rss_pages_ = last_poll_.rss_pages;
  smaps_ns_ = totals_ns_ = monotonic_ns();
  return write_text(FrameKind::smaps, "smaps", moment);
}

std::int64_t ProcessFollow::write_rollup(trace::WalkTrigger moment) {
  totals_ns_ = monotonic_ns();
  return write_text(FrameKind::rollup, "smaps_rollup", moment);
}

void ProcessFollow::write_status(trace::WalkTrigger moment) { write_text(FrameKind::status, "status", moment); }

bool ProcessFollow::wants_peak_smaps(std::int64_t now_ns) const {
  return last_poll_.rss_pages > smaps_rss_pages_ + smaps_rss_pages_ / 10 && now_ns - smaps_ns_ >= kSmapsGapNs;
}

bool ProcessFollow::wants_rollup(std::int64_t now_ns) const { return now_ns - totals_ns_ >= kRollupGapNs; }

std::string ProcessFollow::cgroup_name() const {
  const auto text = read_file(proc("cgroup"));
  return text ? *text : std::string();
}

void ProcessFollow::write_cgroup() {
  // An ended process is in no group any more: the one that it was in is read again.
  cgroup_ = cgroup_ ? reread_cgroup(*cgroup_) : read_cgroup(pid_);
  if (!cgroup_) return;
  const auto number = [](const std::optional<std::int64_t>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  append_json(FrameKind::cgroup, dump({{"version", cgroup_->version},
                                       {"path", cgroup_->path},
                                       {"limit_bytes", number(cgroup_->limit_bytes)},
                                       {"usage_bytes", number(cgroup_->usage_bytes)},
                                       {"peak_bytes", number(cgroup_->peak_bytes)},
                                       {"oom_kills", number(cgroup_->oom_kills)}}));
}

void ProcessFollow::write_process(bool traced_fully) {
  const auto stat = pid_ > 0 ? read_stat(pid_) : std::nullopt;
  if (!stat) {
    // Too short-lived to be seen: its own attach record says the rest.
    append_json(FrameKind::process, dump({{"pid", key_.pid},
                                          {"start_ticks", key_.start_ticks},
                                          {"born_ns", born_ns(key_.start_ticks)},
                                          {"traced", traced_fully ? "full" : "kernel"}}));
    return;
  }
  const auto cmdline = read_file(proc("cmdline"));
  const auto status = read_file(proc("status"));
  append_json(FrameKind::process, dump({{"pid", key_.pid},
                                        {"parent", stat->parent_pid},
                                        {"start_ticks", key_.start_ticks},
                                        {"comm", stat->comm},
                                        {"exe", read_link(proc("exe"))},
                                        {"command", cmdline ? command_of(*cmdline) : std::vector<std::string>{}},
                                        {"uid", status ? status_value(*status, "Uid").value_or(-1) : -1},
                                        {"born_ns", born_ns(key_.start_ticks)},
                                        {"traced", traced_fully ? "full" : "kernel"}}));
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
                                         {"looks_missed", value(slot.looks_missed)}}));
}

void ProcessFollow::write_note(const std::string& text) { append_json(FrameKind::note, dump({{"text", text}})); }

void ProcessFollow::write_ended(const std::string& how, std::optional<int> status) {
  nlohmann::json json{{"ended_ns", monotonic_ns()}, {"how", how}};
  if (status) json["status"] = *status;
  append_json(FrameKind::ended, dump(json));
}

void ProcessFollow::flush_polls() {
  if (polls_.empty()) return;
  append(FrameKind::polls, std::as_bytes(std::span(polls_)));
  polls_.clear();
}

Status ProcessFollow::append_segments(std::int64_t now_ns, std::span<const std::byte> payload) {
  return events_.append(FrameKind::segment, static_cast<std::uint64_t>(now_ns), payload);
}

Status ProcessFollow::append_blocks(std::int64_t now_ns, std::span<const std::byte> payload) {
  return events_.append(FrameKind::blocks, static_cast<std::uint64_t>(now_ns), payload, payload_parts(payload));
}

bool ProcessFollow::append(FrameKind kind, std::span<const std::byte> payload) {
  const std::int64_t now_ns = monotonic_ns();
  const Status stored = pages_.append(kind, static_cast<std::uint64_t>(now_ns), payload);
  if (stored) return true;
  if (complained_ns_ == 0 || now_ns - complained_ns_ >= kComplaintGapNs) {
    complained_ns_ = now_ns;
    context_->log(stored.error());
  }
  return false;
}

void ProcessFollow::append_json(FrameKind kind, const std::string& text) {
  append(kind, std::as_bytes(std::span(text)));
}

}  // namespace whyrss
