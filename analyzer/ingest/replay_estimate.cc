// Replay's accounts of moments at which no walk was made: what the last walk saw, and what events and polls tell since.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>

#include "attribute/attribute.h"
#include "attribute/estimated_walk.h"
#include "ingest/estimate_moments.h"
#include "ingest/not_looked_at.h"
#include "ingest/page_frames.h"
#include "ingest/replay_process.h"

namespace whyrss {
namespace {

// More is there by events than was polled: so much may be noise, and is taken off the largest part.
constexpr double kNoisePart = 0.01;
constexpr std::int64_t kNoiseBytes = 1024 * 1024;

// statm counts in batches per thread.
constexpr std::int64_t kUnmovedBytes = 256 * 1024;

// What says more is damaged.
constexpr std::uint64_t kMostPages = std::uint64_t{1} << 32;  // 16 TiB
constexpr std::int64_t kMostLiveBytes = std::int64_t{1} << 56;

bool is_credible(const std::vector<ResidentRun>& runs, std::uint64_t page_bytes) {
  std::uint64_t pages = 0;
  for (const ResidentRun& run : runs) {
    const std::uint64_t more = (run.end - run.start) / page_bytes;
    if (more > kMostPages - pages) return false;
    pages += more;
  }
  return true;
}

bool is_private_memory(Cause cause) {
  return cause >= Cause::lazy_free && cause <= Cause::unknown && cause != Cause::fork_shared;
}
bool is_file_memory(Cause cause) { return cause == Cause::shared_memory || cause == Cause::file_cache; }

// `lost_bytes` of these slices went, and nobody knows which.
template <typename Belongs>
void take_off(Account& account, std::int64_t lost_bytes, Belongs belongs) {
  if (lost_bytes <= 0) return;
  std::int64_t bytes = 0;
  Slice* largest = nullptr;
  for (Slice& slice : account.slices) {
    if (!belongs(slice.site.cause)) continue;
    bytes += slice.bytes;
    if (largest == nullptr || slice.bytes > largest->bytes) largest = &slice;
  }
  const auto noise = std::max(kNoiseBytes, static_cast<std::int64_t>(kNoisePart * static_cast<double>(bytes)));
  if (largest != nullptr && lost_bytes <= noise && lost_bytes < largest->bytes) {
    largest->bytes -= lost_bytes;
    account.rss_bytes -= lost_bytes;
    largest->exclusive_bytes = std::min(largest->exclusive_bytes, largest->bytes);
    std::int64_t touched_bytes = 0;
    for (TouchShare& share : largest->touched) {
      share.bytes = std::min(share.bytes, largest->bytes - touched_bytes);
      touched_bytes += share.bytes;
    }
    std::erase_if(largest->touched, [](const TouchShare& share) { return share.bytes <= 0; });
    return;
  }
  std::erase_if(account.slices, [&](const Slice& slice) { return belongs(slice.site.cause); });
  account.rss_bytes -= bytes;
  add_not_looked_at(account, bytes - lost_bytes);
}

// How the growth is shared out over lines is told by samples, and by what is new.
void add_variance(const Account& walked, const EstimatedWalk& walk, Account& estimate) {
  std::map<Site, std::int64_t> before;
  for (const Slice& slice : walked.slices) before[slice.site] = slice.bytes;
  double grown = 0;
  const auto growth_of = [&](const Slice& slice) {
    const auto found = before.find(slice.site);
    return std::max(0.0, static_cast<double>(slice.bytes - (found == before.end() ? 0 : found->second)));
  };
  for (const Slice& slice : estimate.slices) grown += growth_of(slice);
  for (Slice& slice : estimate.slices) {
    const double growth = growth_of(slice);
    if (growth <= 0 || slice.site.cause == Cause::not_looked_at) continue;
    if (slice.site.cause == Cause::fork_cow)
      slice.variance += growth * walk.copied_bytes_per_sample;
    else
      slice.variance += growth * walk.bytes_per_sample * (1 - growth / grown);
    const auto unsampled = walk.unsampled_variances.find(slice.site.stack);
    if (unsampled != walk.unsampled_variances.end()) slice.variance += std::min(unsampled->second, growth * growth);
  }
}

// The blocks are all known, and so is what is live: the counters of the last walk are not needed.
void count_blocks(Evidence& evidence) {
  evidence.has_liveness = false;
  for (LivePages& range : evidence.live_pages)
    for (PageLife& page : range.pages) page = {.ever_held = page.ever_held};
}

}  // namespace

bool Replay::may_share_pages(const Process& process) {
  const auto forked = [](const auto& image) { return image->attach().born == trace::Born::fork; };
  return std::ranges::any_of(process.images, forked) ||
         std::ranges::find(process.records, trace::RecordKind::fork, &EventRecord::kind) != process.records.end();
}

// What a program that takes itself down frees says nothing about what it held.
void Replay::find_moments(Process& process) {
  std::vector<trace::Poll> polls = process.polls;
  std::erase_if(polls, [](const trace::Poll& poll) { return poll.rss_pages > kMostPages; });
  if (const auto left_ns = teardown_ns(process))
    std::erase_if(polls, [&](const trace::Poll& poll) { return poll.time_ns >= *left_ns; });
  std::vector<WalkMoment> walks;
  for (const Walk& walk : process.walks)
    if (const auto header = read_walk_header(walk.payload))
      walks.push_back({header->begin_ns, header->end_ns, header->statm_after_pages});
  process.moments =
      moments_between_walks(polls, walks, may_share_pages(process) ? Copies::possible : Copies::impossible);
  // Its growth is not known yet.
  if (process.grows_from_ns != 0 && (process.moments.empty() || process.moments.back().time_ns < process.killed_ns))
    process.moments.push_back(process.polls.back());
}

void Replay::note_mapping(Process& process, const trace::MapRecord& map) {
  const bool anonymous = (map.flags & MAP_ANONYMOUS) != 0, shared = (map.flags & MAP_SHARED) != 0;
  const Backing backing = !anonymous ? Backing::file : shared ? Backing::shmem : Backing::anonymous;
  const std::uint64_t mask = process.page_bytes - 1;
  if (map.size_bytes > std::numeric_limits<std::uint64_t>::max() - map.address - mask) return;
  process.mapped_since.assign(map.address & ~mask, (map.address + map.size_bytes + mask) & ~mask, {backing, shared});
}

void Replay::keep_walk(Process& process, Evidence evidence, const Walk& walk) {
  process.walked.reset();
  process.mapped_since.clear();
  const bool needed = process.next_moment < process.moments.size() &&
                      (process.next_walk == process.walks.size() ||
                       process.moments[process.next_moment].time_ns < process.walks[process.next_walk].time_ns);
  if (!needed) return;
  process.walked = std::move(evidence);
  process.walked_account = process.account->accounts.size() - 1;
  process.walked_ns = walk.time_ns;
}

std::optional<std::int64_t> Replay::live_growth(const Process& process, std::uint64_t until_ns) {
  if (process.live_polls.empty()) return std::nullopt;
  const auto at = [&](std::uint64_t time_ns) {
    const auto next = std::ranges::upper_bound(process.live_polls, time_ns, {}, &trace::LivePoll::time_ns);
    const std::int64_t live_bytes = next == process.live_polls.begin() ? 0 : std::prev(next)->live_bytes;
    return std::clamp(live_bytes, -kMostLiveBytes, kMostLiveBytes);
  };
  return at(until_ns) - at(process.walked_ns);
}

// Before the first walk: what a fork child inherited is there.
Evidence Replay::unwalked(Process& process, SinceWalk& since) {
  Evidence evidence{.traced = true};
  const trace::AttachRecord& attach = process.image->attach();
  evidence.exact_blocks = attach.mode == trace::Mode::exact;
  if (evidence.exact_blocks || attach.sample_bytes > 0) evidence.small_blocks = &process.small.live();
  for (const ForkRange& range : process.space.inheritance().ranges()) {
    since.left.push_back({.start = range.start, .end = range.end});
    if (!evidence.vmas.empty() && evidence.vmas.back().end == range.start)
      evidence.vmas.back().end = range.end;
    else
      evidence.vmas.push_back({.start = range.start, .end = range.end, .path = {}, .writable = true});
  }
  return evidence;
}

void Replay::estimate(Process& process, const trace::Poll& poll) {
  if (process.image == nullptr || process.exec_pending) return;
  AddressSpace& space = process.space;
  const double time_s = seconds_since(settings_.origin_ns, poll.time_ns);
  SinceWalk since = space.touched().since_walk();
  const auto& accounts = process.account->accounts;
  const auto rss_bytes = static_cast<std::int64_t>(poll.rss_pages * process.page_bytes);
  if (since.written.empty() && !accounts.empty() && std::abs(rss_bytes - accounts.back().rss_bytes) < kUnmovedBytes)
    return;  // its faults were no copies
  if (process.walked_ns == 0) process.walked = unwalked(process, since);
  if (!process.walked) return;
  const Evidence& walked = *process.walked;
  if (!walked.traced || !is_credible(since.left, process.page_bytes)) return;
  const std::uint64_t page = process.page_bytes;
  const PolledState polled{
      .rss_bytes = rss_bytes,
      .shared_bytes = static_cast<std::int64_t>(std::min(poll.shared_pages, poll.rss_pages) * page),
      // What was live when it was killed nobody polled.
      .live_growth = poll.time_ns == process.killed_ns ? std::nullopt : live_growth(process, poll.time_ns),
      .samples_faults = process.account->touch.armed};
  std::vector<NewMapping> mapped;
  for (const auto& [start, interval] : process.mapped_since.intervals())
    mapped.push_back({start, interval.end, interval.value.backing, interval.value.shared});

  Evidence evidence{.time_s = time_s, .traced = true, .pool_path = settings_.pool_path};
  evidence.owned = space.owned();
  evidence.held_blocks = space.held_blocks();
  EstimatedWalk walk = estimate_walk(walked, evidence, since, mapped, polled);
  evidence.vmas = std::move(walk.vmas);
  evidence.runs = std::move(walk.runs);
  evidence.live_pages = std::move(walk.live_pages);
  evidence.thread_stacks = space.thread_stacks(evidence.vmas);
  Inheritance inheritance = space.inheritance();
  for (const Range& range : walk.copied) inheritance.settle(range.start, range.end, ForkClass::copied);
  evidence.inherited = inheritance.ranges();
  if (!evidence.inherited.empty()) evidence.ancestor_owned = space.ancestor_owned();
  evidence.has_liveness = walked.has_liveness;
  evidence.small_blocks = walked.small_blocks;
  evidence.exact_blocks = walked.exact_blocks;
  evidence.lazy_free = walked.lazy_free;
  if (evidence.exact_blocks) count_blocks(evidence);
  TouchedPages touched = space.touched();
  evidence.touched = touched.observe(
      {.begin_ns = poll.time_ns, .vmas = evidence.vmas, .runs = evidence.runs, .inherited = evidence.inherited});

  Account account = attribute(evidence);
  take_off(account, walk.lost_anonymous_bytes, is_private_memory);
  take_off(account, walk.lost_shared_bytes, is_file_memory);
  add_not_looked_at(account, walk.open_anonymous_bytes + walk.open_shared_bytes);
  account.estimated_from_s = seconds_since(settings_.origin_ns, std::max(process.walked_ns, process.attached_ns));
  add_variance(process.walked_ns == 0 ? Account{} : accounts[process.walked_account], walk, account);
  std::ranges::stable_sort(account.slices, std::ranges::greater{}, &Slice::bytes);
  process.account->accounts.push_back(std::move(account));
}

}  // namespace whyrss
