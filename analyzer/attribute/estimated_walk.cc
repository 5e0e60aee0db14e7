#include "attribute/estimated_walk.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "attribute/first_touch_shares.h"
#include "attribute/range_cursor.h"
#include "attribute/rules.h"

namespace whyrss {
namespace {

constexpr std::uint64_t kPage = kLivePageBytes;
constexpr std::uint64_t kHugePage = 2ULL * 1024 * 1024;
constexpr std::uint64_t kFaultAround = 64ULL * 1024;  // do_fault_around() of mm/memory.c

// How far a stack or [heap] may have grown over addresses where nothing was mapped.
constexpr std::uint64_t kMostGrowth = 1ULL << 40;

// Of sampled blocks of one heap: many times their mean distance.
constexpr std::uint64_t kMostBetweenBlocks = 4ULL * 1024 * 1024;

// Pages are listed one by one up to here; a damaged recording may claim a heap of any size.
constexpr std::int64_t kMostListedBytes = std::int64_t{1} << 36;

std::uint64_t page_of(std::uint64_t address) { return address - address % kPage; }
std::uint64_t page_after(std::uint64_t address) { return page_of(address + kPage - 1); }

// Pages that were absent at the walk, or are gone since: of one owner, in one mapping.
struct Segment {
  std::uint64_t start = 0, end = 0;
  std::size_t group = 0;
  bool is_new = false;       // of a known owner, where nothing was mapped at the walk, or what was is given back
  std::uint64_t filled = 0;  // bytes from the start on that are taken to be resident

  [[nodiscard]] std::uint64_t room() const { return end - start - filled; }
};

// One or more faults, and where what they brought in begins.
struct Touch {
  std::uint64_t page = 0;
  double faults = 0;
  std::size_t segment = 0;
};

// Absent memory that one line asked for, or that lies in one mapping and has no known owner: what is true of the pages
// with recorded faults goes for the others.
struct Group {
  bool anonymous = true;
  StackId stack = kEmptyStack;          // of the line
  std::vector<std::size_t> segments{};  // by address
  std::vector<Touch> touches{};         // by page
  double faults = 0, squares = 0;
  double room = 0;    // bytes
  bool huge = false;  // there is room for a page of 2 MiB
  bool ours = false;  // of whyrss itself: a fault maps the pages around it, and no more
  double most = 0;    // bytes that the faults can explain
  double bytes = 0;   // estimate
};

// What a walk knew of pages says nothing about those that came after it.
template <typename Ranged>
std::vector<LivePages> without(const std::vector<LivePages>& walked, const std::vector<Ranged>& ranges) {
  std::vector<LivePages> all;
  RangeCursor taken(ranges);
  for (const LivePages& range : walked)
    for (std::uint64_t at = range.start; at < range.end();) {
      const bool free = taken.at(at) == nullptr;
      const std::uint64_t end = std::min(range.end(), taken.boundary(at));
      const auto first = range.pages.begin() + length(range.start, at) / static_cast<std::int64_t>(kPage);
      const auto last = range.pages.begin() + length(range.start, end) / static_cast<std::int64_t>(kPage);
      if (free) all.push_back({at, {first, last}});
      at = end;
    }
  return all;
}

// The kernel makes one mapping of several that touch: one by the program beside one of an allocator.
bool holds_blocks(const OwnedRange& owner, const std::vector<LivePages>& live) {
  auto pages = std::ranges::upper_bound(live, owner.start, {}, &LivePages::end);
  for (; pages != live.end() && pages->start < owner.end; ++pages)
    for (std::size_t i = 0; i < pages->pages.size(); ++i) {
      const std::uint64_t at = pages->start + i * kPage;
      if (at >= owner.start && at < owner.end && pages->pages[i].live_bytes > 0) return true;
    }
  return false;
}

class WalkEstimate {
 public:
  WalkEstimate(const Evidence& walked, const Evidence& now, const SinceWalk& since, const PolledState& polled)
      : walked_(walked), now_(now), since_(since), polled_(polled) {}

  EstimatedWalk make(const std::vector<NewMapping>& mapped) {
    make_mappings(mapped);
    out_.live_pages = without(walked_.live_pages, mapped);
    out_.runs = fitting_runs();
    trim_heap_end();
    copy_shared_pages();
    collect_groups();
    grow(true, anonymous_bytes(), out_.open_anonymous_bytes, out_.lost_anonymous_bytes);
    grow(false, polled_.shared_bytes, out_.open_shared_bytes, out_.lost_shared_bytes);
    put_in_order();
    find_live_pages();
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::int64_t anonymous_bytes() const { return polled_.rss_bytes - polled_.shared_bytes; }

  void make_mappings(const std::vector<NewMapping>& mapped) {
    RangeCursor taken(mapped);
    for (const Vma& vma : walked_.vmas) {
      for (std::uint64_t at = vma.start; at < vma.end;) {
        const bool free = taken.at(at) == nullptr;
        const std::uint64_t end = std::min(vma.end, taken.boundary(at));
        if (free) out_.vmas.push_back(part_of(vma, at, end));
        at = end;
      }
    }
    for (const NewMapping& mapping : mapped)
      out_.vmas.push_back({.start = mapping.start,
                           .end = mapping.end,
                           .path = mapping.path,
                           .backing = mapping.backing,
                           .shared = mapping.shared,
                           .writable = true});
    sort_mappings();
    std::vector<Vma> more;
    for (const OwnedRange& range : now_.owned) cover(page_of(range.start), page_after(range.end), more);
    out_.vmas.insert(out_.vmas.end(), more.begin(), more.end());
    sort_mappings();
    cover_blocks();
    for (const TouchSample& sample : since_.touched) cover_touched(sample.page);
    part_mappings();
  }

  // Events of a damaged recording may contradict each other.
  void part_mappings() {
    sort_mappings();
    std::uint64_t end = 0;
    for (Vma& vma : out_.vmas) {
      vma.start = std::max(vma.start, end);
      end = std::max(vma.end, end);
    }
    std::erase_if(out_.vmas, [](const Vma& vma) { return vma.start >= vma.end; });
  }

  static Vma part_of(const Vma& vma, std::uint64_t start, std::uint64_t end) {
    Vma part = vma;
    part.start = start;
    part.end = end;
    return part;
  }

  void sort_mappings() { std::ranges::sort(out_.vmas, {}, &Vma::start); }

  // Blocks that glibc mapped itself.
  void cover(std::uint64_t start, std::uint64_t end, std::vector<Vma>& more) const {
    if (!more.empty()) start = std::max(start, more.back().end);
    auto vma = std::ranges::upper_bound(out_.vmas, start, {}, &Vma::end);
    while (start < end) {
      const bool inside = vma != out_.vmas.end() && vma->start <= start;
      const std::uint64_t stop = vma == out_.vmas.end() ? end : std::min(end, inside ? vma->end : vma->start);
      if (!inside) more.push_back({.start = start, .end = stop, .path = {}, .writable = true});
      if (inside) ++vma;
      start = stop;
    }
  }

  // A heap that the allocator made since the walk, by calls of its own: sampled blocks lie close to each other in it.
  void cover_blocks() {
    if (now_.small_blocks == nullptr) return;
    std::vector<Range> blocks;  // of millions, those alone that are in no mapping
    const Vma* last = nullptr;  // neighbours in the table are often neighbours in memory
    const auto is_mapped = [&](std::uint64_t page) {
      if (last != nullptr && last->start <= page && page < last->end) return true;
      const auto vma = std::ranges::upper_bound(out_.vmas, page, {}, &Vma::end);
      if (vma == out_.vmas.end() || vma->start > page) return false;
      last = &*vma;
      return true;
    };
    now_.small_blocks->for_each([&](const LiveBlock& block) {
      if (const std::uint64_t page = page_of(block.address); !is_mapped(page))
        blocks.push_back({page, page_after(block.address + block.size_bytes)});
    });
    std::ranges::sort(blocks, {}, &Range::start);
    RangeCursor vmas(out_.vmas);
    std::vector<Vma> heaps;
    for (const Range& block : blocks) {
      if (vmas.at(block.start) != nullptr) continue;  // moves the cursor as well
      const bool adjoins = !heaps.empty() && block.start < vmas.boundary(heaps.back().start) &&
                           block.start - std::min(block.start, heaps.back().end) <= kMostBetweenBlocks;
      if (!adjoins) heaps.push_back({.start = block.start, .end = block.end, .path = "[heap]", .writable = true});
      heaps.back().end = std::max(heaps.back().end, block.end);
    }
    out_.vmas.insert(out_.vmas.end(), heaps.begin(), heaps.end());
    part_mappings();
  }

  void cover_touched(std::uint64_t page) {
    auto above = std::ranges::upper_bound(out_.vmas, page, {}, &Vma::end);
    if (above != out_.vmas.end() && above->start <= page) return;
    if (above != out_.vmas.end() && above->path == "[stack]" && above->start - page < kMostGrowth) {
      above->start = page;
    } else if (above != out_.vmas.begin() && std::prev(above)->path == "[heap]" &&
               page - std::prev(above)->end < kMostGrowth) {
      std::prev(above)->end = page + kPage;
    } else {
      out_.vmas.insert(above, {.start = page, .end = page + kPage, .path = {}, .writable = true});
    }
  }

  // What is left of the walk's, where its mapping is the same yet.
  std::vector<ResidentRun> fitting_runs() const {
    std::vector<ResidentRun> runs;
    RangeCursor vmas(out_.vmas);
    for (const ResidentRun& run : since_.left)
      for (std::uint64_t at = run.start; at < run.end;) {
        const Vma* vma = vmas.at(at);
        const std::uint64_t end = std::min(run.end, vmas.boundary(at));
        const bool fits = vma != nullptr && (!run.file || !is_private_anonymous(*vma));
        if (fits) runs.push_back({at, end, run.file, run.exclusive, run.huge});
        at = end;
      }
    return runs;
  }

  [[nodiscard]] std::int64_t resident_bytes(bool anonymous) const {
    std::int64_t bytes = 0;
    for (const ResidentRun& run : out_.runs)
      if (run.file != anonymous) bytes += length(run.start, run.end);
    return bytes;
  }

  // glibc gives the end of its heap back by calls of its own.
  void trim_heap_end() {
    std::int64_t surplus = resident_bytes(true) - anonymous_bytes();
    const auto heap = std::ranges::find(out_.vmas, "[heap]", &Vma::path);
    if (surplus <= 0 || heap == out_.vmas.end()) return;
    std::uint64_t keep_from = 0;  // above the last block of AddressSpace, which is live
    for (const OwnedRange& range : now_.owned)
      if (range.owner == Owner::block && range.start < heap->end)
        keep_from = std::max(keep_from, page_after(range.end));
    for (auto run = out_.runs.rbegin(); run != out_.runs.rend() && surplus > 0; ++run) {
      if (run->start < heap->start || run->end > heap->end || run->end <= keep_from) continue;
      const std::uint64_t lowest = std::max(run->start, keep_from);
      const std::uint64_t cut = std::min<std::uint64_t>(run->end - lowest, static_cast<std::uint64_t>(surplus));
      run->end -= cut;
      surplus -= static_cast<std::int64_t>(cut);
    }
    std::erase_if(out_.runs, [](const ResidentRun& run) { return run.start == run.end; });
  }

  // A copy takes the place of its original, so that no size tells of it.
  void copy_shared_pages() {
    double faults = 0, squares = 0;
    auto run = out_.runs.begin();
    std::uint64_t free = 0;  // below it, every shared page has been taken
    for (const TouchSample& sample : since_.written) {
      const double weight = std::max<std::uint32_t>(sample.weight, 1);
      std::uint64_t left = static_cast<std::uint64_t>(weight) * kPage;
      free = std::max(free, sample.page);
      while (run != out_.runs.end() && run->end <= sample.page) ++run;
      if (run == out_.runs.end()) break;
      if (run->start > sample.page || run->file || run->exclusive) continue;
      faults += weight;
      squares += weight * weight;
      for (auto at = run; at != out_.runs.end() && left > 0; ++at) {
        if (at->file || at->exclusive || at->end <= free) continue;
        const std::uint64_t start = std::max(at->start, free);
        free = start + std::min(at->end - start, left);
        left -= free - start;
        out_.copied.push_back({start, free});
      }
    }
    if (faults > 0) out_.copied_bytes_per_sample = squares / faults * kPage;
    make_exclusive();
  }

  void make_exclusive() {
    std::vector<ResidentRun> runs;
    RangeCursor copied(out_.copied);
    for (const ResidentRun& run : out_.runs)
      for (std::uint64_t at = run.start; at < run.end;) {
        const bool own = copied.at(at) != nullptr || run.exclusive;
        const std::uint64_t end = std::min(run.end, copied.boundary(at));
        runs.push_back({at, end, run.file, own, run.huge});
        at = end;
      }
    out_.runs = std::move(runs);
  }

  void collect_groups() {
    find_segments();
    std::vector<Touch> touches;
    for (const TouchSample& sample : since_.touched)
      touches.push_back({sample.page, static_cast<double>(std::max<std::uint32_t>(sample.weight, 1))});
    for (const KernelTouch& call : since_.by_kernel)
      touches.push_back({page_of(call.start), static_cast<double>(call.faults) * call.calls});
    std::ranges::stable_sort(touches, {}, &Touch::page);
    std::size_t next = 0;
    for (Touch& touch : touches) {
      while (next < segments_.size() && segments_[next].end <= touch.page) ++next;
      if (next == segments_.size()) break;
      touch.segment = next;  // the one behind it, where its own page is there
      Group& group = groups_[segments_[next].group];
      group.touches.push_back(touch);
      group.faults += touch.faults;
      group.squares += touch.faults * touch.faults;
    }
    for (Group& group : groups_) {
      std::uint64_t unit = group.anonymous && !group.huge ? kPage : kHugePage;
      if (group.ours) unit = group.anonymous ? kPage : kFaultAround;
      group.most =
          std::min(group.room, static_cast<double>(unit) * (group.faults + kStandardErrors * std::sqrt(group.squares)));
    }
  }

  void find_segments() {
    RangeCursor owned(now_.owned);
    RangeCursor resident(out_.runs);
    RangeCursor walked(walked_.vmas);
    RangeCursor gone(since_.gone);
    std::map<std::tuple<bool, Owner, StackId>, std::size_t> of_line;
    for (const Vma& vma : out_.vmas) {
      std::size_t of_mapping = kNone;
      for (std::uint64_t at = vma.start; at < vma.end;) {
        const bool there = resident.at(at) != nullptr;
        const OwnedRange* owner = owned.at(at);
        if (owner == nullptr) owner = owned.at(at + kPage - 1);  // a block begins on the page
        const bool was_mapped = walked.at(at) != nullptr, given_back = gone.at(at) != nullptr;
        const std::uint64_t end = std::min({vma.end, resident.boundary(at), walked.boundary(at),
                                            page_after(std::min(gone.boundary(at), vma.end)),
                                            page_after(std::min(owned.boundary(at), vma.end))});
        if (!there)
          add_segment(
              {.start = at, .end = end, .is_new = !was_mapped || given_back}, vma, owner,
              owner == nullptr
                  ? of_mapping
                  : of_line.try_emplace({is_private_anonymous(vma), owner->owner, owner->stack}, kNone).first->second);
        at = std::max(end, at + kPage);
      }
    }
  }

  void add_segment(Segment segment, const Vma& vma, const OwnedRange* owner, std::size_t& number) {
    const bool ours = (owner != nullptr && owner->owner == Owner::whyrss) || rules::is_own_file(walked_, vma.path);
    if (number == kNone) {
      number = groups_.size();
      groups_.push_back({.anonymous = is_private_anonymous(vma),
                         .stack = owner == nullptr ? kEmptyStack : owner->stack,
                         .ours = ours});
    }
    Group& group = groups_[number];
    segment.group = number;
    segment.is_new &= owner != nullptr && owner->owner != Owner::whyrss;
    group.segments.push_back(segments_.size());
    group.room += static_cast<double>(segment.end - segment.start);
    group.huge |= !ours && (segment.start + kHugePage - 1) / kHugePage * kHugePage + kHugePage <= segment.end;
    segments_.push_back(segment);
  }

  // Shares out what was polled and is not there yet over the groups, by their faults, up to what each can have.
  void grow(bool anonymous, std::int64_t polled_bytes, std::int64_t& open_bytes, std::int64_t& lost_bytes) {
    const std::int64_t missing = polled_bytes - resident_bytes(anonymous);
    if (missing <= 0) {
      lost_bytes = -missing;
      return;
    }
    std::vector<Group*> groups;
    for (Group& group : groups_)
      if (group.anonymous == anonymous && group.most > 0 && group.faults > 0) groups.push_back(&group);
    std::ranges::sort(groups, {}, [](const Group* group) { return group->most / group->faults; });
    const std::size_t known_runs = new_runs_.size();
    double left = static_cast<double>(missing), faults = 0, squares = 0;
    for (const Group* group : groups) faults += group->faults;
    const double all_faults = faults;
    for (Group* group : groups) {  // the first ones reach what they can have
      group->bytes = std::min(group->most, left * group->faults / faults);
      left -= group->bytes;
      faults -= group->faults;
      squares += group->squares;
    }
    for (Group* group : groups) fill(*group);
    if (left >= kPage) take_new_memory(anonymous, left);
    for (const Segment& segment : segments_)
      if (segment.filled > 0 && groups_[segment.group].anonymous == anonymous)
        new_runs_.push_back({.start = segment.start,
                             .end = segment.start + segment.filled,
                             .file = !anonymous,
                             .exclusive = anonymous});
    out_.runs.insert(out_.runs.end(), new_runs_.begin() + static_cast<std::ptrdiff_t>(known_runs), new_runs_.end());
    open_bytes = std::max<std::int64_t>(polled_bytes - resident_bytes(anonymous), 0);
    if (anonymous && all_faults > 0)
      out_.bytes_per_sample = static_cast<double>(missing - open_bytes) / all_faults * squares / all_faults;
  }

  // From each fault on upwards, and what is left over from the start.
  void fill(Group& group) {
    const auto all = static_cast<std::uint64_t>(std::llround(group.bytes / static_cast<double>(kPage))) * kPage;
    std::uint64_t left = all;
    std::size_t next = 0;
    double due = 0;
    for (const Touch& touch : group.touches) {
      due += static_cast<double>(all) * touch.faults / group.faults;
      while (next < group.segments.size() && group.segments[next] < touch.segment) ++next;
      const auto wanted = std::max(0.0, due - static_cast<double>(all - left));
      left -= take(group, next, std::min(left, page_of(static_cast<std::uint64_t>(wanted))));
    }
    next = 0;
    take(group, next, left);
  }

  // What no sampled fault explains may be in new memory: pages of 2 MiB take few faults, and where none are sampled
  // there is nothing else to go by. Of files a fault may map a megabyte, of any mapping. How much of it is in each is
  // certain only as far as it fills them all.
  void take_new_memory(bool anonymous, double bytes) {
    std::vector<std::size_t> likely;
    double room = 0;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      const Segment& segment = segments_[i];
      const Group& group = groups_[segment.group];
      if (group.anonymous != anonymous || group.ours) continue;
      if (anonymous && (!segment.is_new || (polled_.samples_faults && !group.huge))) continue;
      likely.push_back(i);
      room += static_cast<double>(segment.room());
    }
    if (room <= 0) return;
    const double part = std::min(1.0, bytes / room);
    std::map<StackId, double> taken;
    for (const std::size_t i : likely) {
      const auto more = page_of(static_cast<std::uint64_t>(static_cast<double>(segments_[i].room()) * part));
      segments_[i].filled += more;
      taken[groups_[segments_[i].group].stack] += static_cast<double>(more);
    }
    if (taken.size() == 1) return;
    for (const auto& [stack, more] : taken) {
      const double error = std::min(more, std::max(0.0, room - bytes));
      out_.unsampled_variances[stack] += error * error;
    }
  }

  // From the group's segment number `next` on; leaves `next` at the first one that has room.
  std::uint64_t take(const Group& group, std::size_t& next, std::uint64_t bytes) {
    std::uint64_t taken = 0;
    while (taken < bytes && next < group.segments.size()) {
      Segment& segment = segments_[group.segments[next]];
      const std::uint64_t part = std::min(bytes - taken, segment.room());
      segment.filled += part;
      taken += part;
      if (segment.room() == 0) ++next;
    }
    return taken;
  }

  // Runs are disjoint, and each lies in one mapping, whatever a damaged recording says.
  void put_in_order() {
    std::ranges::sort(out_.runs, {}, &ResidentRun::start);
    RangeCursor vmas(out_.vmas);
    std::uint64_t end = 0;
    for (ResidentRun& run : out_.runs) {
      run.start = std::max(run.start, end);
      const Vma* vma = run.start < run.end ? vmas.at(run.start) : nullptr;
      run.end = vma == nullptr ? run.start : std::min(run.end, vma->end);
      end = std::max(end, run.end);
    }
    std::erase_if(out_.runs, [](const ResidentRun& run) { return run.start >= run.end; });
  }

  // What is live on pages of the heap that came since the walk: the counter of live bytes tells how much, or they are
  // in use, as an allocator asks for more only when it needs it.
  void find_live_pages() {
    std::ranges::sort(new_runs_, {}, &ResidentRun::start);
    std::vector<LivePages> fresh;
    std::int64_t listed_bytes = 0, fresh_bytes = 0;
    RangeCursor vmas(out_.vmas);
    RangeCursor owned(now_.owned);
    for (const ResidentRun& run : new_runs_) {
      if (run.file) continue;
      for (std::uint64_t at = run.start; at < run.end;) {
        const Vma* vma = vmas.at(at);
        const OwnedRange* owner = owned.at(at);
        const std::uint64_t end = std::max(page_of(std::min(run.end, owned.boundary(at))), at + kPage);
        const bool fits = listed_bytes + length(at, end) <= kMostListedBytes;
        if (vma != nullptr && fits && is_heap(*vma, owner)) {
          const bool pymalloc = owner != nullptr && owner->owner == Owner::pymalloc;
          const auto count = static_cast<std::size_t>(length(at, end) / static_cast<std::int64_t>(kPage));
          fresh.push_back({at, std::vector<PageLife>(count, {.live_bytes = pymalloc ? kFull : std::uint16_t{0},
                                                             .pymalloc = pymalloc,
                                                             .ever_held = true})});
          listed_bytes += length(at, end);
          if (!pymalloc) fresh_bytes += length(at, end);
        }
        at = end;
      }
    }
    set_live_bytes(fresh, fresh_bytes);
    if (polled_.object_growth) set_object_bytes(fresh, *polled_.object_growth);
    put_in(std::move(fresh));
  }

  static constexpr auto kFull = static_cast<std::uint16_t>(kPage);

  [[nodiscard]] bool is_heap(const Vma& vma, const OwnedRange* owner) const {
    if (!is_private_anonymous(vma)) return false;
    if (owner != nullptr && owner->owner != Owner::program)
      return owner->owner == Owner::allocator || owner->owner == Owner::pymalloc;
    if (owner == nullptr && vma.path == "[heap]") return true;
    if (!vma.path.empty() && !vma.path.starts_with("[anon")) return false;
    return owner == nullptr ? held_blocks(vma) : holds_blocks(*owner, out_.live_pages);
  }

  [[nodiscard]] bool held_blocks(const Vma& vma) const {
    const auto pages = std::ranges::upper_bound(out_.live_pages, vma.start, {}, &LivePages::end);
    return pages != out_.live_pages.end() && pages->start < vma.end;
  }

  // Small blocks alone: large ones are known by their addresses.
  void set_live_bytes(std::vector<LivePages>& fresh, std::int64_t fresh_bytes) {
    auto growth = static_cast<double>(fresh_bytes);
    const double large_growth = large_bytes(now_.owned) - large_bytes(walked_.owned);
    if (polled_.live_growth) growth = static_cast<double>(*polled_.live_growth) - large_growth;
    if (growth < 0 && polled_.most_live_growth)
      growth = std::clamp(static_cast<double>(*polled_.most_live_growth) - large_growth, growth, 0.0);
    if (polled_.most_small_growth) growth = std::min(growth, *polled_.most_small_growth);
    if (growth < 0) return shrink_live(-growth);
    if (fresh_bytes == 0) return;
    const double per_page = std::min(1.0, growth / static_cast<double>(fresh_bytes)) * kPage;
    for (LivePages& range : fresh)
      for (PageLife& page : range.pages)
        if (!page.pymalloc) page.live_bytes = static_cast<std::uint16_t>(per_page);
  }

  static std::int64_t object_bytes_on(const std::vector<LivePages>& ranges) {
    std::int64_t bytes = 0;
    for (const LivePages& range : ranges)
      for (const PageLife& page : range.pages)
        if (page.pymalloc) bytes += page.live_bytes;
    return bytes;
  }

  static void scale_objects(std::vector<LivePages>& ranges, double part) {
    for (LivePages& range : ranges)
      for (PageLife& page : range.pages)
        if (page.pymalloc) page.live_bytes = static_cast<std::uint16_t>(page.live_bytes * std::clamp(part, 0.0, 1.0));
  }

  // New arenas are as full as that makes them; what is less than at the walk is missing in all of them.
  void set_object_bytes(std::vector<LivePages>& fresh, double growth) {
    const auto of_walk = static_cast<double>(object_bytes_on(out_.live_pages));
    const auto room = static_cast<double>(object_bytes_on(fresh));
    if (room > 0) scale_objects(fresh, growth / room);
    if (growth < 0 && of_walk > 0) scale_objects(out_.live_pages, (of_walk + growth) / of_walk);
  }

  static double large_bytes(const std::vector<OwnedRange>& owned) {
    double bytes = 0;
    for (const OwnedRange& range : owned)
      if (range.owner == Owner::block) bytes += static_cast<double>(range.end - range.start);
    return bytes;
  }

  // Which pages they were freed on is not known.
  void shrink_live(double freed_bytes) {
    std::int64_t live_bytes = 0;
    const auto is_malloc = [](const PageLife& page) { return !page.pymalloc; };
    for (const LivePages& range : out_.live_pages)
      for (const PageLife& page : range.pages)
        if (is_malloc(page)) live_bytes += page.live_bytes;
    if (live_bytes == 0) return;
    const double kept = std::max(0.0, 1 - freed_bytes / static_cast<double>(live_bytes));
    for (LivePages& range : out_.live_pages)
      for (PageLife& page : range.pages)
        if (is_malloc(page)) page.live_bytes = static_cast<std::uint16_t>(page.live_bytes * kept);
  }

  void put_in(std::vector<LivePages> fresh) {
    std::vector<Range> ranges;
    for (const LivePages& range : fresh) ranges.push_back({range.start, range.end()});
    std::vector<LivePages> all = without(out_.live_pages, ranges);
    all.insert(all.end(), fresh.begin(), fresh.end());
    std::ranges::sort(all, {}, &LivePages::start);
    out_.live_pages = std::move(all);
  }

  const Evidence& walked_;
  const Evidence& now_;
  const SinceWalk& since_;
  const PolledState& polled_;
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<Segment> segments_;  // by address
  std::vector<Group> groups_;
  std::vector<ResidentRun> new_runs_;
  EstimatedWalk out_;
};

}  // namespace

SampledBytes sampled_bytes(const Evidence& evidence) {
  SampledBytes sum;
  if (evidence.small_blocks == nullptr) return sum;
  std::vector<Range> arenas;
  for (const OwnedRange& range : evidence.owned)
    if (range.owner == Owner::pymalloc) arenas.push_back({range.start, range.end});
  evidence.small_blocks->for_each([&](const LiveBlock& block) {
    const double weight = block.weight, bytes = weight * block.size_bytes;
    const auto arena = std::ranges::upper_bound(arenas, block.address, {}, &Range::end);
    if (arena != arenas.end() && arena->start <= block.address) {
      sum.objects += bytes;
      return;
    }
    sum.others += bytes;
    sum.others_variance += bytes * (weight - 1) * block.size_bytes;
    sum.most_of_one = std::max(sum.most_of_one, bytes);
  });
  return sum;
}

EstimatedWalk estimate_walk(const Evidence& walked, const Evidence& now, const SinceWalk& since,
                            const std::vector<NewMapping>& mapped, const PolledState& polled) {
  return WalkEstimate(walked, now, since, polled).make(mapped);
}

}  // namespace whyrss
