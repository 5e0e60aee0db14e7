#include "report/view/memory_figures.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "report/view/series.h"

namespace whyrss {
namespace {

// A family is read one process after another.

// A reading and the poll before it: RSS may have moved in between, and the reading is right.
constexpr double kAtOnceS = 0.02;

// What polls and walks are followed by: 1 MiB, or 1 to 2 %.
constexpr std::int64_t kLikeBytes = 2LL * 1024 * 1024;
constexpr double kLikeShare = 0.04;

bool is_reading(const KernelTotals& totals) { return totals.rss_bytes && totals.pss_bytes; }

std::int64_t exclusive_bytes(const Account& walk) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kCauseCount; ++i) sum += walk.slices.sum_of(static_cast<Cause>(i)).exclusive_bytes;
  return sum;
}

// Of them those without a file behind: who else maps a file may change at any time.
std::int64_t own_bytes(const Account& walk) {
  return exclusive_bytes(walk) - walk.slices.sum_of(Cause::file_cache).exclusive_bytes -
         walk.slices.sum_of(Cause::shared_memory).exclusive_bytes;
}

// Whether walks from the reading to `time_s` show the same RSS as the reading, and the same part of it as shared.
bool rested(const ProcessAccount& process, const KernelTotals& read, double time_s) {
  const Account* now = last_at(process.accounts, time_s);
  if (now == nullptr) return false;
  const std::int64_t exclusive = exclusive_bytes(*now);
  for (; now->time_s > read.time_s; --now) {
    if (!is_like(*read.rss_bytes, now->rss_bytes) || !is_like(exclusive, exclusive_bytes(*now))) return false;
    if (now == process.accounts.data()) return false;
  }
  return is_like(*read.rss_bytes, now->rss_bytes) && is_like(exclusive, exclusive_bytes(*now));
}

// What one that leaves shares with others counts in theirs from then on: a reading from after that is of another state.
bool others_left(const ProcessTimes& times, const ProcessAccount& process, double time_s, double read_s) {
  return times.others_left(process, std::min(time_s, read_s), std::max(time_s, read_s));
}

// nullptr: RSS was another one when it was read.
const KernelTotals* fitting_reading(const ProcessTimes& times, const ProcessAccount& process, double time_s,
                                    bool same_state) {
  const auto rss = rss_at(process, time_s);
  const auto is_usable = [&](const KernelTotals& read) {
    if (!is_reading(read)) return false;
    const bool fits = std::abs(read.time_s - time_s) <= kAtOnceS || !rss || is_like(*read.rss_bytes, *rss);
    return fits && !shares_otherwise(process, read, time_s) &&
           !(same_state && others_left(times, process, time_s, read.time_s)) &&
           !(read.time_s > time_s && family_grew(times, process, time_s, read.time_s));  // which shares with it since
  };
  const KernelTotals* nearest = nullptr;
  auto least = std::pair(true, kSameMomentS);  // one of the same sharing first
  for (auto read = std::ranges::lower_bound(process.totals, time_s - kSameMomentS, {}, &KernelTotals::time_s);
       read != process.totals.end() && read->time_s <= time_s + kSameMomentS; ++read) {
    if (!is_usable(*read)) continue;
    const std::pair found{relatives_copied(times, process, *read, time_s), std::abs(read->time_s - time_s)};
    if (found > least) continue;
    nearest = &*read;
    least = found;
  }
  if (nearest != nullptr) return nearest;
  // Others may move while this one rests for long.
  const KernelTotals* last = last_at(process.totals, time_s);
  while (last != nullptr && !is_reading(*last)) last = last == process.totals.data() ? nullptr : last - 1;
  return last != nullptr && is_usable(*last) && rested(process, *last, time_s) ? last : nullptr;
}

// How much of what a process shares counts as its own: as it was read nearest to the walk.
struct SharedPart {
  std::int64_t read_bytes = 0;  // shared when it was read
  double weight = 0;
};

SharedPart shared_part(const ProcessAccount& process, double time_s) {
  const auto is_complete = [](const KernelTotals& read) { return is_reading(read) && read.uss_bytes; };
  const auto& all = process.totals;
  const auto middle = std::ranges::upper_bound(all, time_s, {}, &KernelTotals::time_s);
  const auto next = std::find_if(middle, all.end(), is_complete);
  const auto last = std::find_if(std::make_reverse_iterator(middle), all.rend(), is_complete);
  const KernelTotals* nearest = next == all.end() ? nullptr : &*next;
  if (last != all.rend() && (nearest == nullptr || time_s - last->time_s <= nearest->time_s - time_s)) nearest = &*last;
  if (nearest == nullptr) return {};
  const std::int64_t shared = std::max<std::int64_t>(*nearest->rss_bytes - *nearest->uss_bytes, 0);
  if (shared == 0) return {};
  const auto part = static_cast<double>(*nearest->pss_bytes - *nearest->uss_bytes);
  return {shared, std::clamp(part / static_cast<double>(shared), 0.0, 1.0)};
}

// Who may map what came since the last reading.
double equal_part(const ProcessTimes& times, double time_s) {
  const auto alive = std::ranges::count_if(times.near(time_s), [&](const ProcessAccount* process) {
    return process->born_s <= time_s && process->ended_s.value_or(time_s) >= time_s && !process->accounts.empty();
  });
  return 1.0 / static_cast<double>(std::max<std::ptrdiff_t>(alive, 2));  // what is shared has two users at least
}

std::int64_t scaled(std::int64_t bytes, double factor) { return std::llround(static_cast<double>(bytes) * factor); }

// Files and shared memory as statm tells them.
std::optional<std::int64_t> shared_at(const ProcessAccount& process, double time_s) {
  const RssPoint* poll = last_at(process.polls, time_s);
  return poll == nullptr ? std::nullopt : std::optional(poll->shared_bytes);
}

// RSS has moved since the walk: anonymous memory is taken as its own.
void follow_poll(const ProcessTimes& times, const ProcessAccount& process, const Account& walk, const RssPoint& poll,
                 KernelTotals& totals) {
  const std::int64_t moved = poll.rss_bytes - walk.rss_bytes;
  const std::int64_t before = shared_at(process, walk.time_s).value_or(poll.shared_bytes);
  const std::int64_t of_files =
      std::clamp(poll.shared_bytes - before, std::min<std::int64_t>(moved, 0), std::max<std::int64_t>(moved, 0));
  const std::int64_t own = moved - of_files;
  const bool alone = times.recording().processes.size() == 1;
  const std::int64_t counted = alone ? of_files : scaled(of_files, equal_part(times, poll.time_s));
  const auto shift = [](std::optional<std::int64_t>& figure, std::int64_t by) {
    if (figure) figure = std::max<std::int64_t>(*figure + by, 0);
  };
  totals.rss_bytes = poll.rss_bytes;
  totals.anonymous_bytes = poll.rss_bytes - std::min(poll.shared_bytes, poll.rss_bytes);
  shift(totals.uss_bytes, own + (alone ? of_files : 0));
  shift(totals.pss_anonymous_bytes, own);
  shift(totals.pss_file_bytes, counted);
  *totals.pss_bytes = *totals.pss_anonymous_bytes + *totals.pss_file_bytes + *totals.pss_shmem_bytes;
}

void put_in_order(KernelTotals& totals) {
  totals.pss_bytes = std::clamp<std::int64_t>(*totals.pss_bytes, 0, *totals.rss_bytes);
  if (totals.uss_bytes) totals.uss_bytes = std::clamp<std::int64_t>(*totals.uss_bytes, 0, *totals.pss_bytes);
}

// A child that was born since this state was read shares with it: the child's first walk says how much.
void share_with_children(const ProcessTimes& times, const ProcessAccount& process, double time_s, double state_s,
                         MemoryFigures& figures) {
  KernelTotals& totals = figures.totals;
  if (!totals.uss_bytes) return;
  const std::int64_t known = *totals.rss_bytes - *totals.uss_bytes;
  std::int64_t more = 0, children = 0;
  times.children(process.pid, time_s, state_s, [&](const ProcessAccount& child) {
    if (child.born_s < process.born_s) return;
    const Account& first = child.accounts.front();
    const std::int64_t unknown = first.rss_bytes - exclusive_bytes(first) - known;
    if (unknown <= kLikeBytes) return;
    more = std::max(more, unknown);
    ++children;
  });
  if (children == 0) return;
  more = std::min(more, *totals.uss_bytes);
  const std::int64_t of_others = more - more / (children + 1);
  *totals.uss_bytes -= more;
  *totals.pss_bytes -= of_others;
  if (totals.pss_anonymous_bytes) *totals.pss_anonymous_bytes -= of_others;
  figures.estimate = true;
}

}  // namespace

std::int64_t bytes_of(const Account& account, Cause cause) { return account.slices.sum_of(cause).bytes; }

std::int64_t last_bytes(const ProcessView& process, Cause cause) {
  const CauseView* found = process.find(cause);
  return found == nullptr ? 0 : found->rss.last;
}

bool is_like(std::int64_t rss_bytes, std::int64_t other_bytes) {
  const std::int64_t noticeable = scaled(std::max(rss_bytes, other_bytes), kLikeShare);
  return std::abs(rss_bytes - other_bytes) <= std::max(kLikeBytes, noticeable);
}

bool shares_otherwise(const ProcessAccount& process, const KernelTotals& read, double time_s) {
  const Account* now = last_at(process.accounts, time_s);
  const Account* then = last_at(process.accounts, read.time_s);
  return now != nullptr && then != nullptr && now != then && !is_like(own_bytes(*now), own_bytes(*then));
}

bool relatives_copied(const ProcessTimes& times, const ProcessAccount& process, const KernelTotals& read,
                      double time_s) {
  const auto [from_s, to_s] = std::minmax(read.time_s, time_s);
  // Of each copied page the others have at most half a page more: where it was shared by two.
  std::int64_t moved = std::abs(times.copied_by_relatives(process, from_s, to_s)) / 2;
  const std::int64_t pss = read.pss_bytes.value_or(0);
  if (read.time_s <= time_s) moved = std::min(moved, std::max<std::int64_t>(read.rss_bytes.value_or(pss) - pss, 0));
  return !is_like(pss, pss + moved);
}

bool family_grew(const ProcessTimes& times, const ProcessAccount& process, double from_s, double to_s) {
  bool grew = false;
  const auto see = [&](const ProcessAccount& child) { grew |= child.born_s > from_s; };
  times.children(process.pid, to_s, from_s, see);
  if (process.parent) times.children(*process.parent, to_s, from_s, see);
  return grew;
}

std::optional<std::int64_t> rss_at(const ProcessAccount& process, double time_s) {
  if (const RssPoint* poll = last_at(process.polls, time_s)) return poll->rss_bytes;
  const Account* walk = last_at(process.accounts, time_s);
  return walk == nullptr ? std::nullopt : std::optional(walk->rss_bytes);
}

KernelTotals estimate_at_walk(const ProcessTimes& times, const ProcessAccount& process, const Account& walk) {
  const std::int64_t exclusive = std::min(exclusive_bytes(walk), walk.rss_bytes);
  const std::int64_t shared = walk.rss_bytes - exclusive;
  const SharedPart part = shared_part(process, walk.time_s);
  const std::int64_t known = std::min(shared, part.read_bytes);
  const double weight_of_new = std::max(part.weight, equal_part(times, walk.time_s));
  const std::int64_t counted = scaled(known, part.weight) + scaled(shared - known, weight_of_new);
  const double weight = shared == 0 ? 0 : static_cast<double>(counted) / static_cast<double>(shared);
  KernelTotals totals;
  totals.time_s = walk.time_s;
  totals.rss_bytes = walk.rss_bytes;
  totals.uss_bytes = exclusive;
  totals.pss_bytes = exclusive + counted;
  std::int64_t files = 0, pss_file = 0, pss_shmem = 0;
  for (const Slice& slice : walk.slices) {
    if (slice.site.cause != Cause::file_cache && slice.site.cause != Cause::shared_memory) continue;
    const std::int64_t pss = slice.exclusive_bytes + scaled(slice.bytes - slice.exclusive_bytes, weight);
    (slice.site.cause == Cause::file_cache ? pss_file : pss_shmem) += pss;
    files += slice.bytes;
  }
  put_in_order(totals);
  const std::int64_t of_files = std::min(shared_at(process, walk.time_s).value_or(files), walk.rss_bytes);
  totals.anonymous_bytes = walk.rss_bytes - of_files;
  totals.pss_file_bytes = std::min(pss_file, *totals.pss_bytes);
  totals.pss_shmem_bytes = std::min(pss_shmem, *totals.pss_bytes - *totals.pss_file_bytes);
  totals.pss_anonymous_bytes = *totals.pss_bytes - *totals.pss_file_bytes - *totals.pss_shmem_bytes;
  return totals;
}

std::optional<MemoryFigures> figures_at(const ProcessTimes& times, const ProcessAccount& process, double time_s,
                                        bool same_state) {
  if (std::ranges::none_of(process.totals, is_reading)) return std::nullopt;
  if (const KernelTotals* read = fitting_reading(times, process, time_s, same_state)) {
    MemoryFigures figures{*read, relatives_copied(times, process, *read, time_s)};
    share_with_children(times, process, time_s, read->time_s, figures);
    put_in_order(figures.totals);
    return figures;
  }
  const RssPoint* poll = last_at(process.polls, time_s);
  const auto rss = rss_at(process, time_s);
  const Account* walk = last_at(process.accounts, time_s);
  const Account* next = first_after(process.accounts, time_s);
  if (next != nullptr && next->time_s > time_s + kSameMomentS) next = nullptr;
  const auto is_nearer = [&] {
    return walk == nullptr || (rss && std::abs(next->rss_bytes - *rss) < std::abs(walk->rss_bytes - *rss));
  };
  if (next != nullptr && is_nearer()) walk = next;
  if (walk == nullptr) return std::nullopt;
  MemoryFigures figures{estimate_at_walk(times, process, *walk), true};
  if (poll != nullptr && !is_like(walk->rss_bytes, poll->rss_bytes))
    follow_poll(times, process, *walk, *poll, figures.totals);
  share_with_children(times, process, time_s, walk->time_s, figures);
  put_in_order(figures.totals);
  figures.totals.time_s = time_s;
  return figures;
}

std::optional<std::int64_t> unmapped_at(const RecordingInfo& info, const ProcessAccount& process, double time_s) {
  if (!info.capabilities.contains("unmapped_shmem")) return std::nullopt;
  const UnmappedMemory* last = last_at(process.unmapped, time_s);
  return last == nullptr ? 0 : last->bytes;
}

std::optional<std::int64_t> unmapped_at(const ProcessTimes& times, double time_s) {
  if (!times.recording().info.capabilities.contains("unmapped_shmem")) return std::nullopt;
  std::int64_t sum = 0;
  for (const ProcessAccount* process : times.near(time_s)) {
    if (!is_there(*process, time_s)) continue;
    // What it unmaps while it ends is not memory that it uses past its mappings.
    const UnmappedMemory* last = last_at(process->unmapped, std::min(time_s, process->teardown_s.value_or(time_s)));
    if (last != nullptr && !last->bytes) return std::nullopt;
    if (last != nullptr) sum += *last->bytes;
  }
  return sum;
}

std::vector<SiteView> unmapped_sites(const std::vector<UnmappedMemory::File>& files) {
  std::vector<SiteView> sites;
  for (const UnmappedMemory::File& file : files) {
    SiteView& site = sites.emplace_back();
    site.stack = file.made_at;
    site.name = &file.name;
    site.growth = site.resident = file.bytes;
  }
  return sites;
}

}  // namespace whyrss
