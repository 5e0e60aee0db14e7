// Replay's accounts of moments at which no walk was made: what the last walk saw, and what events and polls tell since.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attribute/attribute.h"
#include "attribute/estimated_walk.h"
#include "attribute/first_touch_shares.h"
#include "decode/page_frames.h"
#include "replay/estimate_moments.h"
#include "replay/not_looked_at.h"
#include "replay/replay_process.h"

namespace whyrss {
namespace {

// More is there by events than was polled: so much may be noise, and is taken off the largest part.
constexpr double kNoisePart = 0.01;
constexpr std::int64_t kNoiseBytes = 1024 * 1024;

// statm counts in batches per thread.
constexpr std::int64_t kUnmovedBytes = 256 * 1024;

// The kernel's mark counts in batches per thread.
constexpr std::int64_t kPeakNoiseBytes = 2 * 1024 * 1024, kPeakNoisePart = 50;

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
  return (cause >= Cause::lazy_free && cause <= Cause::unknown && cause != Cause::fork_shared) ||
         cause == Cause::heap_unsplit;
}
bool is_file_memory(Cause cause) { return cause == Cause::shared_memory || cause == Cause::file_cache; }

template <typename Share>
void cut(std::vector<Share>& shares, std::int64_t bytes) {
  for (Share& share : shares) {
    share.bytes = std::min(share.bytes, bytes);
    bytes -= share.bytes;
  }
  std::erase_if(shares, [](const Share& share) { return share.bytes <= 0; });
}

void shrink(Slice& slice, std::int64_t bytes) {
  slice.bytes = bytes;
  slice.exclusive_bytes = std::min(slice.exclusive_bytes, bytes);
  slice.huge_bytes = std::min(slice.huge_bytes, bytes);
  cut(slice.touched, bytes);
  cut(slice.advised, bytes);
}

// `lost_bytes` went without a call of the program, of these slices as long as there are some. Returns what cannot have
// been of them. Of which of several is not known.
template <typename Belongs>
std::int64_t take_off_first(Account& account, std::int64_t lost_bytes, Belongs belongs) {
  std::int64_t all_bytes = 0;
  for (const Slice& slice : account.slices)
    if (belongs(slice.site.cause)) all_bytes += slice.bytes;
  const std::int64_t taken_bytes = std::clamp<std::int64_t>(lost_bytes, 0, all_bytes);
  if (taken_bytes == 0) return lost_bytes;
  const double part = static_cast<double>(all_bytes - taken_bytes) / static_cast<double>(all_bytes);
  std::int64_t before_bytes = 0, kept_bytes = 0;
  for (Slice& slice : account.slices.open()) {
    if (!belongs(slice.site.cause)) continue;
    const std::int64_t others_bytes = all_bytes - slice.bytes;
    before_bytes += slice.bytes;
    const std::int64_t kept = std::llround(static_cast<double>(before_bytes) * part) - kept_bytes;
    kept_bytes += kept;
    const auto error = static_cast<double>(std::min({kept, taken_bytes, others_bytes}));
    slice.variance += error * error;
    shrink(slice, kept);
  }
  std::erase_if(account.slices.open(),
                [&](const Slice& slice) { return belongs(slice.site.cause) && slice.bytes == 0; });
  account.rss_bytes -= taken_bytes;
  return lost_bytes - taken_bytes;
}

// Of files and shared memory the kernel takes pages of files.
std::int64_t take_off_files(Account& account, std::int64_t lost_bytes) {
  return take_off_first(account, lost_bytes, [](Cause cause) { return cause == Cause::file_cache; });
}

// An allocator gives free pages back by calls of libc's own, as glibc does at the end of [heap]; the kernel takes what
// was given up with MADV_FREE, and else only swaps.
std::int64_t take_off_free(const ProcessAccount& process, Account& account, std::int64_t lost_bytes) {
  const auto is_swapped = [](const KernelTotals& totals) { return totals.swap_bytes.value_or(0) > 0; };
  if (std::ranges::any_of(process.totals, is_swapped)) return lost_bytes;
  return take_off_first(account, lost_bytes,
                        [](Cause cause) { return cause == Cause::heap_retained || cause == Cause::lazy_free; });
}

// `lost_bytes` of these slices went, of which is not known: each still has what is left if all of it was its own.
template <typename Belongs>
void take_off(Account& account, std::int64_t lost_bytes, Belongs belongs) {
  if (lost_bytes <= 0) return;
  std::int64_t bytes = 0;
  Slice* largest = nullptr;
  for (Slice& slice : account.slices.open()) {
    if (!belongs(slice.site.cause)) continue;
    bytes += slice.bytes;
    if (largest == nullptr || slice.bytes > largest->bytes) largest = &slice;
  }
  const auto noise = std::max(kNoiseBytes, static_cast<std::int64_t>(kNoisePart * static_cast<double>(bytes)));
  if (largest != nullptr && lost_bytes <= noise && lost_bytes < largest->bytes) {
    shrink(*largest, largest->bytes - lost_bytes);
    account.rss_bytes -= lost_bytes;
    return;
  }
  std::int64_t certain_bytes = 0;
  for (Slice& slice : account.slices.open()) {
    if (!belongs(slice.site.cause)) continue;
    shrink(slice, std::max<std::int64_t>(slice.bytes - lost_bytes, 0));
    certain_bytes += slice.bytes;
  }
  std::erase_if(account.slices.open(),
                [&](const Slice& slice) { return belongs(slice.site.cause) && slice.bytes == 0; });
  account.rss_bytes -= bytes - certain_bytes;
  add_not_looked_at(account, bytes - lost_bytes - certain_bytes);
}

// The bytes of each site of an account, of which there may be a million.
class SiteBytes {
 public:
  explicit SiteBytes(const SliceList& slices) {
    entries_.reserve(slices.size());
    for (const Slice& slice : slices) {
      const auto mapping = mappings_.try_emplace(slice.site.mapping, mappings_.size()).first->second;
      entries_.push_back({key_of(slice.site, mapping), slice.bytes});
    }
    std::ranges::sort(entries_, {}, &Entry::key);
  }
  // 0: it has no such site.
  std::int64_t operator[](const Site& site) const {
    const auto mapping = mappings_.find(site.mapping);
    if (mapping == mappings_.end()) return 0;
    const Key key = key_of(site, mapping->second);
    const auto found = std::ranges::lower_bound(entries_, key, {}, &Entry::key);
    return found != entries_.end() && found->key == key ? found->bytes : 0;
  }

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  struct Entry {
    Key key;
    std::int64_t bytes;
  };
  static Key key_of(const Site& site, std::size_t mapping) {
    return {static_cast<std::uint64_t>(site.stack) << 32 | static_cast<std::uint64_t>(site.cause) << 1 |
                (site.in_large_block ? 1U : 0U),
            mapping};
  }

  std::unordered_map<std::string, std::size_t> mappings_;
  std::vector<Entry> entries_;
};

// How the growth is shared out over lines is known from samples, and by what is new.
void add_variance(const Account& walked, const EstimatedWalk& walk, Account& estimate) {
  const SiteBytes before(walked.slices);
  double grown = 0;
  const auto growth_of = [&](const Slice& slice) {
    return std::max(0.0, static_cast<double>(slice.bytes - before[slice.site]));
  };
  for (const Slice& slice : estimate.slices) grown += growth_of(slice);
  for (Slice& slice : estimate.slices.open()) {
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

// How many bytes of large blocks and mappings live, as events come: when they were most, of the times that count, and
// how many more than when the process was polled with most.
class LargeLive {
 public:
  // From here on, until the next call, times count or not.
  void count_from(std::uint64_t time_ns, bool counts) {
    leave(time_ns);
    counts_ = counts;
    rise();
  }

  void take(const EventRecord& record, std::uint64_t polled_ns) {
    trace::BlockRecord block{};
    trace::MapRecord map{};
    trace::RangeRecord range{};
    using Kind = trace::RecordKind;
    if (record.kind == Kind::attach) sizes_.clear(), bytes_ = 0;
    if (record.kind == Kind::allocate && read_record(record, block) && block.sampled_bytes == 0)
      add(block.address, block.size_bytes, record.time_ns);
    if (record.kind == Kind::release && read_record(record, block)) remove(block.address, record.time_ns);
    if (record.kind == Kind::map && read_record(record, map)) add(map.address, map.size_bytes, record.time_ns);
    if (record.kind == Kind::unmap && read_record(record, range)) remove(range.address, record.time_ns);
    if (record.kind == Kind::advise && read_record(record, range) && range.argument == MADV_DONTNEED) drop(range);
    if (record.time_ns <= polled_ns) at_poll_ = bytes_;
    last_ns_ = record.time_ns;
  }

  // Right before the first of it went.
  [[nodiscard]] std::pair<std::uint64_t, std::int64_t> peak() const {
    return {left_ns_ != 0 ? left_ns_ - 1 : last_ns_, most_ - at_poll_};
  }

 private:
  void leave(std::uint64_t time_ns) {
    if (counts_ && bytes_ == most_ && left_ns_ == 0) left_ns_ = time_ns;
  }
  void rise() {
    if (counts_ && bytes_ > most_) most_ = bytes_, left_ns_ = 0;
  }
  void add(std::uint64_t address, std::uint64_t size_bytes, std::uint64_t time_ns) {
    remove(address, time_ns);
    const auto size = static_cast<std::int64_t>(std::min<std::uint64_t>(size_bytes, kMostLiveBytes));
    sizes_[address] = size;
    bytes_ = std::min(bytes_ + size, kMostLiveBytes);
    rise();
  }
  // It counts as gone, though it may come back.
  void drop(const trace::RangeRecord& range) {
    auto found = sizes_.upper_bound(range.address);
    if (found == sizes_.begin()) return;
    --found;
    const std::uint64_t offset = range.address - found->first;
    if (offset >= static_cast<std::uint64_t>(found->second)) return;
    leave(range.header.time_ns);
    const auto size =
        static_cast<std::int64_t>(std::min(range.size_bytes, static_cast<std::uint64_t>(found->second) - offset));
    found->second -= size;
    bytes_ -= size;
  }
  void remove(std::uint64_t address, std::uint64_t time_ns) {
    const auto found = sizes_.find(address);
    if (found == sizes_.end()) return;
    leave(time_ns);
    bytes_ -= found->second;
    sizes_.erase(found);
  }

  std::map<std::uint64_t, std::int64_t> sizes_;  // by address
  std::int64_t bytes_ = 0, most_ = -1, at_poll_ = 0;
  std::uint64_t left_ns_ = 0, last_ns_ = 0;
  bool counts_ = true;
};

// Where between two polls the process can have had so many bytes, by its page faults.
class RoomForPeak {
 public:
  RoomForPeak(const std::vector<trace::Poll>& polls, std::int64_t bytes, std::int64_t page_bytes) : polls_(polls) {
    for (std::size_t i = 0; i < polls.size(); ++i) {
      const trace::Poll& next = polls[std::min(i + 1, polls.size() - 1)];
      suffices_.push_back(pages_of(polls[i]) + faults_of(next) - faults_of(polls[i]) >= bytes / page_bytes);
    }
  }
  // False where pages of 2 MiB came by one fault each, or what is known of faults does not fit.
  [[nodiscard]] bool exists() const { return std::ranges::find(suffices_, true) != suffices_.end(); }
  // Calls visit(time_ns, suffices) for each change up to a time that is later than that of the call before.
  template <typename Visit>
  void advance(std::uint64_t time_ns, Visit visit) {
    for (; next_ < polls_.size() && polls_[next_].time_ns <= time_ns; ++next_)
      visit(polls_[next_].time_ns, static_cast<bool>(suffices_[next_]));
  }

 private:
  static std::int64_t pages_of(const trace::Poll& poll) {
    return static_cast<std::int64_t>(std::min(poll.rss_pages, kMostPages));
  }
  static std::int64_t faults_of(const trace::Poll& poll) {
    return static_cast<std::int64_t>(std::min(poll.minor_faults, kMostPages) + std::min(poll.major_faults, kMostPages));
  }

  const std::vector<trace::Poll>& polls_;
  std::vector<bool> suffices_;  // from each poll to the next
  std::size_t next_ = 0;
};

// The blocks are all known, and so is what is live: the counters of the last walk are not needed. Of Python objects
// some are older than the hooks.
void count_blocks(Evidence& evidence) {
  evidence.has_liveness = false;
  for (LivePages& range : evidence.live_pages)
    for (PageLife& page : range.pages)
      if (!page.pymalloc) page = {.ever_held = page.ever_held};
}

}  // namespace

// The kernel's mark says how large it ever was, and not when. Where that is more than any poll and walk tells, it was
// when most was live of large blocks and mappings, if they can be the reason.
void Replay::add_poll_at_peak(Process& process) const {
  if (process.polls.empty() || process.merge) return;
  const auto page_bytes = static_cast<std::int64_t>(process.page_bytes);
  const auto bytes_of_pages = [&](std::uint64_t pages) {
    return static_cast<std::int64_t>(std::min(pages, kMostPages)) * page_bytes;
  };
  const trace::Poll* largest = &*std::ranges::max_element(process.polls, {}, &trace::Poll::rss_pages);
  std::int64_t known_bytes = bytes_of_pages(largest->rss_pages);
  for (const Walk& walk : process.walks)
    if (const auto header = read_walk_header(walk.frame->payload))
      known_bytes = std::max(known_bytes, bytes_of_pages(header->statm_after_pages));
  const std::int64_t mark_bytes = process.account->high_water_bytes;
  const std::int64_t missing_bytes = mark_bytes - known_bytes;
  if (missing_bytes <= std::max(kPeakNoiseBytes, known_bytes / kPeakNoisePart)) return;
  LargeLive live;
  RoomForPeak room(process.polls, mark_bytes - kPeakNoiseBytes, page_bytes);
  const bool knows_room = room.exists();
  if (knows_room) live.count_from(0, false);
  const auto end_ns = teardown_ns(process).value_or(std::numeric_limits<std::uint64_t>::max());
  for (std::size_t i = 0; i < process.records.size() && process.records[i].time_ns < end_ns; ++i) {
    if (knows_room)
      room.advance(process.records[i].time_ns,
                   [&](std::uint64_t time_ns, bool suffices) { live.count_from(time_ns, suffices); });
    live.take(process.records[i], largest->time_ns);
  }
  const auto [peak_ns, more_bytes] = live.peak();
  // What is mapped at once comes page by page.
  const std::int64_t touched_bytes = sampled_faults(process, largest->time_ns + 1, peak_ns) * page_bytes;
  if (peak_ns == 0 || (!knows_room && std::max(more_bytes, touched_bytes) < missing_bytes / 2)) return;
  const auto next = std::ranges::upper_bound(process.polls, peak_ns, {}, &trace::Poll::time_ns);
  trace::Poll poll = next == process.polls.begin() ? *next : *std::prev(next);
  poll.time_ns = process.peak_ns = peak_ns;
  poll.rss_pages = static_cast<std::uint64_t>(mark_bytes / page_bytes);
  process.polls.insert(next, poll);
}

bool Replay::may_share_pages(const Process& process) {
  const auto forked = [](const auto& image) { return image->attach().born == trace::Born::fork; };
  return std::ranges::any_of(process.images, forked) || process.records.has(trace::RecordKind::fork);
}

// What a program that takes itself down frees says nothing about what it held.
void Replay::find_moments(Process& process) const {
  add_poll_at_peak(process);
  std::vector<trace::Poll> polls = process.polls;
  const std::uint64_t left_ns = teardown_ns(process).value_or(std::numeric_limits<std::uint64_t>::max());
  const auto is_left_out = [&](const trace::Poll& poll) {
    return poll.rss_pages > kMostPages || poll.time_ns >= left_ns;
  };
  std::erase_if(polls, is_left_out);
  std::vector<WalkMoment> walks;
  for (const Walk& walk : process.walks)
    if (const auto header = read_walk_header(walk.frame->payload))
      walks.push_back({header->begin_ns, header->end_ns, header->statm_after_pages});
  process.moments =
      moments_between_walks(polls, walks, may_share_pages(process) ? Copies::possible : Copies::impossible);
  std::vector<trace::Poll> sizes = process.sizes;
  std::erase_if(sizes, is_left_out);
  add_edges(sizes, process.moments);
  // Also right beside a walk.
  const auto peak = std::ranges::find(polls, process.peak_ns, &trace::Poll::time_ns);
  const auto at = std::ranges::lower_bound(process.moments, process.peak_ns, {}, &trace::Poll::time_ns);
  if (process.peak_ns != 0 && peak != polls.end() && (at == process.moments.end() || at->time_ns != process.peak_ns))
    process.moments.insert(at, *peak);
  // Its growth is not known yet.
  if ((process.grows_from_ns != 0 || process.blocks_moved) &&
      (process.moments.empty() || process.moments.back().time_ns < process.killed_ns))
    process.moments.push_back(process.polls.back());
}

void Replay::note_mapping(Process& process, const trace::MapRecord& map) {
  const bool anonymous = (map.flags & MAP_ANONYMOUS) != 0, shared = (map.flags & MAP_SHARED) != 0;
  const bool in_memory = anonymous ? shared : map.file == trace::MappedFile::memory;
  const Backing backing = in_memory ? Backing::shmem : anonymous ? Backing::anonymous : Backing::file;
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
  // There may be millions, of which the end alone needs the sum.
  const bool is_last = process.next_walk == process.walks.size();
  process.walked_blocks = evidence.exact_blocks && !is_last ? SampledBytes() : sampled_bytes(evidence);
  process.walked = std::move(evidence);
  process.walked_account = process.account->accounts.size() - 1;
  process.walked_ns = walk.time_ns;
}

void Replay::read_live_growth(const Process& process, std::uint64_t until_ns, PolledState& polled) {
  if (process.live_polls.empty()) return;
  const auto around = [&](std::uint64_t time_ns) {
    const auto next = std::ranges::upper_bound(process.live_polls, time_ns, {}, &trace::LivePoll::time_ns);
    const auto bounded = [](std::int64_t live_bytes) {
      return std::clamp(live_bytes, -kMostLiveBytes, kMostLiveBytes);
    };
    const std::int64_t before = next == process.live_polls.begin() ? 0 : bounded(std::prev(next)->live_bytes);
    return std::pair(before, next == process.live_polls.end() ? before : bounded(next->live_bytes));
  };
  const auto [walked, after_walk] = around(process.walked_ns);
  const auto [now, after_now] = around(until_ns);
  polled.live_growth = now - walked;
  polled.most_live_growth = std::max(now, after_now) - std::min(walked, after_walk);
}

// Events do not say which files were mapped; the next walk does, but for what is replaced before it.
void Replay::name_files(Process& process, std::vector<NewMapping>& mapped) {
  const auto has_name = [](const auto& mapping) {
    return mapping.backing == Backing::file || (mapping.backing == Backing::shmem && mapping.shared);
  };
  if (std::ranges::none_of(mapped, has_name)) return;
  const WalkedPages* pages = peek_next_walk(process);
  if (pages == nullptr) return;
  IntervalMap<const Vma*> files;
  for (const Vma& vma : pages->vmas)
    if (has_name(vma)) files.assign(vma.start, vma.end, &vma);
  for (std::size_t i = process.next_record; i < process.records.size(); ++i) {
    const EventRecord& record = process.records[i];
    if (record.time_ns > pages->begin_ns) break;
    if (record.kind == trace::RecordKind::exec) return;
    trace::MapRecord map{};
    if (record.kind == trace::RecordKind::map && read_record(record, map) &&
        map.size_bytes <= std::numeric_limits<std::uint64_t>::max() - map.address)
      files.erase(map.address, map.address + map.size_bytes);
  }
  std::vector<NewMapping> named;
  for (const NewMapping& mapping : mapped) {
    std::uint64_t at = mapping.start;
    const auto add = [&](std::uint64_t end, Backing backing, const std::string& path) {
      if (at == end) return;
      named.push_back({at, end, backing, mapping.shared, path});
      at = end;
    };
    if (has_name(mapping)) {
      files.visit_within(at, mapping.end, [&](std::uint64_t start, std::uint64_t end, const Vma* vma) {
        add(start, mapping.backing, {});
        add(end, vma->backing, vma->path);
      });
    }
    add(mapping.end, mapping.backing, {});
  }
  mapped = std::move(named);
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
  // What was given back since a walk began waits for its end; at a moment before that it is gone.
  std::optional<AddressSpace> of_moment;
  if (process.space.in_walk()) of_moment.emplace(process.space).final_walk();
  AddressSpace& space = of_moment ? *of_moment : process.space;
  const double time_s = seconds_since(settings_.origin_ns, poll.time_ns);
  SinceWalk since = space.touched().since_walk();
  const auto& accounts = process.account->accounts;
  const auto rss_bytes = static_cast<std::int64_t>(poll.rss_pages * process.page_bytes);
  const bool blocks_moved = process.blocks_moved && poll.time_ns == process.killed_ns;
  if (since.written.empty() && !blocks_moved && !accounts.empty() &&
      std::abs(rss_bytes - accounts.back().rss_bytes) < kUnmovedBytes)
    return;  // its faults were no copies
  // What it inherited it says in a moment.
  if (process.walked_ns == 0 && process.needs_inheritance_from_walk &&
      process.records.has(trace::RecordKind::inherited))
    return;
  if (process.walked_ns == 0) {
    process.walked = unwalked(process, since);
    process.walked_blocks = {};
  }
  if (!process.walked) return;
  const Evidence& walked = *process.walked;
  if (!walked.traced || !is_credible(since.left, process.page_bytes)) return;
  const std::uint64_t page = process.page_bytes;
  PolledState polled{.rss_bytes = rss_bytes,
                     .shared_bytes = static_cast<std::int64_t>(std::min(poll.shared_pages, poll.rss_pages) * page),
                     .live_growth = {},
                     .samples_faults = process.account->touch.armed};
  // What lived between two polls, at the peak, was not polled.
  if (poll.time_ns != process.peak_ns) read_live_growth(process, poll.time_ns, polled);
  std::vector<NewMapping> mapped;
  for (const auto& [start, interval] : process.mapped_since.intervals())
    mapped.push_back({start, interval.end, interval.value.backing, interval.value.shared});
  name_files(process, mapped);

  Evidence evidence{.time_s = time_s, .traced = true, .pool_path = settings_.pool_path};
  evidence.owned = space.owned();
  evidence.held_blocks = space.held_blocks();
  evidence.small_blocks = walked.small_blocks;
  evidence.block_header_bytes = walked.block_header_bytes;
  evidence.exact_blocks = walked.exact_blocks;
  if (!evidence.exact_blocks || blocks_moved) {
    const SampledBytes blocks = sampled_bytes(evidence), before = process.walked_blocks;
    if (blocks.objects + before.objects > 0)  // else nothing tells of them
      polled.object_growth = blocks.objects - before.objects;
    if (!evidence.exact_blocks && blocks.others + before.others > 0)
      polled.most_small_growth = blocks.others - before.others +
                                 kStandardErrors * std::sqrt(blocks.others_variance + before.others_variance) +
                                 std::max(blocks.most_of_one, before.most_of_one);
  }
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
  evidence.lazy_free = walked.lazy_free;
  if (evidence.exact_blocks) count_blocks(evidence);
  TouchedPages touched = space.touched();
  evidence.touched = touched.observe(
      {.begin_ns = poll.time_ns, .vmas = evidence.vmas, .runs = evidence.runs, .inherited = evidence.inherited});

  Account account = attribute(evidence);
  take_off(account, take_off_free(*process.account, account, walk.lost_anonymous_bytes), is_private_memory);
  take_off(account, take_off_files(account, walk.lost_shared_bytes), is_file_memory);
  add_not_looked_at(account, walk.open_anonymous_bytes + walk.open_shared_bytes);
  account.estimated_from_s = seconds_since(settings_.origin_ns, std::max(process.walked_ns, process.attached_ns));
  add_variance(process.walked_ns == 0 ? Account{} : accounts[process.walked_account], walk, account);
  std::ranges::stable_sort(account.slices.open(), std::ranges::greater{}, &Slice::bytes);
  account.slices.pack(names_);
  process.account->accounts.push_back(std::move(account));
}

}  // namespace whyrss
