#include "attribute/ledger.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "attribute/block_data.h"
#include "attribute/range_cursor.h"
#include "support/result.h"

namespace whyrss {
namespace {

// Pages of a file whose mapping was recorded: the kernel maps a large folio of the page cache whole, on ext4 in Linux
// 6.18 670 KiB a fault. It seldom reads or fills mapped files itself.
bool is_all_by_faults(Cause cause, StackId mapped_at) { return cause == Cause::file_cache && mapped_at != kEmptyStack; }

std::uint64_t next_arena_boundary(std::uint64_t at) {
  const std::uint64_t below = at - at % kGlibcArenaBytes;
  return below > std::numeric_limits<std::uint64_t>::max() - kGlibcArenaBytes
             ? std::numeric_limits<std::uint64_t>::max()
             : below + kGlibcArenaBytes;
}

// Of blocks and of the program's own mappings, by who asked for them: what lies in private memory without a file.
std::map<std::pair<Owner, StackId>, std::int64_t> asked_for(const Evidence& evidence) {
  std::map<std::pair<Owner, StackId>, std::int64_t> bytes;
  auto vma = evidence.vmas.begin();
  for (const OwnedRange& range : evidence.owned) {
    if (range.owner != Owner::block && range.owner != Owner::program) continue;
    while (vma != evidence.vmas.end() && vma->end <= range.start) ++vma;
    std::int64_t mapped_bytes = 0;
    for (auto part = vma; part != evidence.vmas.end() && part->start < range.end; ++part)
      if (part->writable && is_private_anonymous(*part))
        mapped_bytes += length(std::max(part->start, range.start), std::min(part->end, range.end));
    if (mapped_bytes > 0) bytes[{range.owner, range.stack}] += mapped_bytes;
  }
  return bytes;
}

bool is_copied(const ForkRange& range) { return range.fork_class == ForkClass::copied; }

void cut_at_data(const Range& data, Fragment& fragment) {
  if (fragment.start < data.start) {
    fragment.end = std::min(fragment.end, data.start);
  } else if (fragment.start < data.end) {
    fragment.end = std::min(fragment.end, data.end);
    fragment.in_large_block = true;
  }
}

// Cuts the resident runs wherever any evidence changes.
std::vector<Fragment> cut_into_fragments(const Evidence& evidence) {
  RangeCursor vmas(evidence.vmas);
  RangeCursor owned(evidence.owned);
  RangeCursor ancestor(evidence.ancestor_owned);
  RangeCursor held(evidence.held_blocks);
  RangeCursor stacks(evidence.thread_stacks);
  RangeCursor inherited(evidence.inherited);
  RangeCursor lazy(evidence.lazy_free);
  std::vector<Fragment> fragments;
  fragments.reserve(evidence.runs.size() +
                    2 * (evidence.owned.size() + evidence.held_blocks.size() + evidence.inherited.size() +
                         evidence.ancestor_owned.size() + evidence.lazy_free.size()));
  std::uint64_t last_end = 0;
  for (const ResidentRun& run : evidence.runs) {
    require(run.start < run.end && run.start >= last_end, "resident runs are not sorted");
    last_end = run.end;
    for (std::uint64_t at = run.start; at < run.end;) {
      const Vma* vma = vmas.at(at);
      require(vma != nullptr && vma->end >= run.end, "a resident run lies outside its mapping");
      Fragment fragment{.start = at,
                        .end = run.end,
                        .vma_index = static_cast<std::size_t>(vma - evidence.vmas.data()),
                        .vma = vma,
                        .file = run.file,
                        .exclusive = run.exclusive,
                        .huge = run.huge,
                        .fork_class = ForkClass::none,
                        .owned = owned.at(at),
                        .ancestor_owned = nullptr,
                        .in_large_block = false,
                        .thread_stack = stacks.at(at),
                        .held = held.at(at),
                        .lazy = lazy.at(at)};
      fragment.end =
          std::min({fragment.end, owned.boundary(at), held.boundary(at), stacks.boundary(at), lazy.boundary(at)});
      fragment.end = std::min(fragment.end, next_arena_boundary(at));
      const ForkRange* fork = inherited.at(at);
      fragment.end = std::min(fragment.end, inherited.boundary(at));
      if (fork != nullptr) {
        fragment.fork_class = fork->fork_class;
        fragment.ancestor_owned = ancestor.at(at);
        fragment.end = std::min(fragment.end, ancestor.boundary(at));
        if (fragment.ancestor_owned != nullptr)
          cut_at_data(written_data(*fragment.ancestor_owned, evidence.inherited, is_copied), fragment);
      }
      at = fragment.end;
      fragments.push_back(fragment);
    }
  }
  return fragments;
}

}  // namespace

std::size_t Ledger::slot_of(const SiteKey& key) const {
  const std::uint64_t word = (std::uint64_t{static_cast<std::uint32_t>(key.stack)} << 32) ^
                             (std::uint64_t{key.mapping} << 8) ^ (std::uint64_t{key.in_large_block} << 7) ^
                             static_cast<std::uint64_t>(key.cause);
  const std::uint64_t hash = word * 0x9e3779b97f4a7c15ULL;
  std::size_t slot = (hash ^ hash >> 32) & (slots_.size() - 1);
  while (slots_[slot] != 0 && sums_[slots_[slot] - 1].key != key) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void Ledger::grow_slots() {
  constexpr std::size_t kLeastSlots = 256;
  slots_.assign(std::max(kLeastSlots, slots_.size() * 2), 0);
  for (std::uint32_t i = 0; i < sums_.size(); ++i) slots_[slot_of(sums_[i].key)] = i + 1;
}

Ledger::Ledger(const Evidence& evidence, PageMapBuilder* picture)
    : evidence_(evidence),
      picture_(picture),
      unclaimed_(cut_into_fragments(evidence)),
      resident_bytes_(evidence.vmas.size()),
      claimed_bytes_(evidence.vmas.size()),
      untouched_(asked_for(evidence)),
      touch_(evidence.touched) {
  for (const Fragment& fragment : unclaimed_) {
    resident_bytes_[fragment.vma_index] += length(fragment.start, fragment.end);
    rss_bytes_ += length(fragment.start, fragment.end);
    if (fragment.owned == nullptr || !fragment.vma->writable || !is_private_anonymous(*fragment.vma)) continue;
    const auto asked = untouched_.find({fragment.owned->owner, fragment.owned->stack});
    if (asked != untouched_.end()) asked->second -= length(fragment.start, fragment.end);
  }
  std::int64_t run_bytes = 0;
  for (const ResidentRun& run : evidence.runs) run_bytes += length(run.start, run.end);
  require(run_bytes == rss_bytes_, "the ledger does not open with the resident bytes of the walk");
}

std::uint32_t Ledger::mapping_index(std::string_view mapping) {
  if (!mappings_.empty() && mapping.data() == last_mapping_.data() && mapping.size() == last_mapping_.size())
    return last_mapping_index_;
  const auto [place, added] =
      mapping_indices_.try_emplace(std::string(mapping), static_cast<std::uint32_t>(mappings_.size()));
  if (added) mappings_.emplace_back(mapping);
  last_mapping_ = mapping;  // the evidence's own text, which outlives the ledger
  last_mapping_index_ = place->second;
  return last_mapping_index_;
}

std::uint32_t Ledger::number_of(Cause cause, const Claim& claim) {
  const SiteKey key{cause, claim.stack, mapping_index(claim.mapping), claim.in_large_block};
  if (!sums_.empty() && sums_[last_site_].key == key) return last_site_;
  if (sums_.size() * 2 >= slots_.size()) grow_slots();
  std::uint32_t& slot = slots_[slot_of(key)];
  if (slot == 0) {
    sums_.push_back({.key = key});
    slot = static_cast<std::uint32_t>(sums_.size());
  }
  return last_site_ = slot - 1;
}

void Ledger::add(const Booking& booking) {
  Sum& sum = sums_[number_of(booking.cause, booking.claim)];
  sum.bytes += booking.bytes;
  sum.exclusive_bytes += booking.exclusive_bytes;
  sum.variance += booking.variance;
}

void Ledger::add_whole(const Fragment& fragment) {
  Sum& last = sums_[last_site_];
  touch_.add(last_site_, fragment.start, fragment.end);
  if (last.key.cause == Cause::lazy_free && fragment.lazy != nullptr)
    advised_[{last_site_, fragment.lazy->advised_by}] += length(fragment.start, fragment.end);
  const std::vector<Range>& zeros = evidence_.huge_zeros;
  auto zero = std::ranges::upper_bound(zeros, fragment.start, {}, &Range::end);
  for (; zero != zeros.end() && zero->start < fragment.end; ++zero)
    last.huge_bytes += length(std::max(zero->start, fragment.start), std::min(zero->end, fragment.end)) *
                       std::int64_t{evidence_.huge_stride};
}

void Ledger::book(Cause cause, const Claim& claim, const Fragment& fragment) {
  const std::int64_t bytes = length(fragment.start, fragment.end);
  book({.cause = cause, .claim = claim, .bytes = bytes, .exclusive_bytes = fragment.exclusive ? bytes : 0});
  add_whole(fragment);
}

void Ledger::book_touch(Cause cause, const Claim& claim, TouchPart part) {
  const std::uint32_t site = number_of(cause, claim);
  require(sums_[site].bytes > 0, "a site was touched that has no bytes");
  touch_.add(site, part);
}

void Ledger::book(const Booking& booking) {
  if (booking.bytes == 0) return;
  require(booking.bytes > 0 && booking.exclusive_bytes >= 0 && booking.exclusive_bytes <= booking.bytes,
          "a booking is not a part of what was taken");
  pending_bytes_ -= booking.bytes;
  pending_exclusive_bytes_ -= booking.exclusive_bytes;
  require(pending_bytes_ >= 0 && pending_exclusive_bytes_ >= 0, "more was booked than was taken");
  add(booking);
}

void Ledger::check() const {
  for (std::size_t i = 0; i < resident_bytes_.size(); ++i)
    require(claimed_bytes_[i] + open_bytes_[i] == resident_bytes_[i],
            "claimed and unclaimed bytes of a mapping are not its resident bytes");
}

// Small mappings of one line are fitted together. Most sites of exact mode are small and have no known toucher, and
// neither have the others of their lines.
Ledger::Touchers Ledger::touch_shares() const {
  Touchers shares;
  std::map<std::pair<Cause, StackId>, std::vector<TouchSite>> thin;
  const auto is_fitted = [&](const Sum& sum) { return sum.key.stack != kEmptyStack && touch_.is_thin(sum.bytes); };
  for (std::uint32_t number = 0; number < sums_.size(); ++number) {
    if (!touch_.has(number)) continue;
    const Sum& sum = sums_[number];
    const TouchSite site{number, sum.bytes};
    if (is_fitted(sum))
      thin[{sum.key.cause, sum.key.stack}];
    else
      shares[number] = std::move(touch_.shares({&site, 1}, is_all_by_faults(sum.key.cause, sum.key.stack)).front());
  }
  if (thin.empty()) return shares;
  for (std::uint32_t number = 0; number < sums_.size(); ++number)
    if (const Sum& sum = sums_[number]; is_fitted(sum))
      if (const auto line = thin.find({sum.key.cause, sum.key.stack}); line != thin.end())
        line->second.push_back({number, sum.bytes});
  for (auto& [line, sites] : thin) {
    auto of_sites = touch_.shares(sites, is_all_by_faults(line.first, line.second));
    for (std::size_t i = 0; i < sites.size(); ++i) shares[sites[i].number] = std::move(of_sites[i]);
  }
  return shares;
}

std::vector<AdviceShare> Ledger::advice_shares(std::uint32_t site) const {
  std::vector<AdviceShare> shares;
  for (auto at = advised_.lower_bound({site, kEmptyStack}); at != advised_.end() && at->first.first == site; ++at)
    shares.push_back({at->first.second, at->second});
  std::ranges::stable_sort(shares, std::ranges::greater{}, &AdviceShare::bytes);
  return shares;
}

std::int64_t Ledger::take_untouched(Cause cause, StackId stack) {
  if (cause != Cause::heap_live && cause != Cause::anonymous) return 0;
  const auto found = untouched_.find({cause == Cause::heap_live ? Owner::block : Owner::program, stack});
  return found == untouched_.end() ? 0 : std::exchange(found->second, 0);
}

std::vector<std::uint32_t> Ledger::largest_first() const {
  struct Place {
    std::int64_t bytes;
    std::uint32_t number;
    StackId stack;
    Cause cause;
  };
  std::vector<Place> places;
  places.reserve(sums_.size());
  for (std::uint32_t i = 0; i < sums_.size(); ++i)
    places.push_back({sums_[i].bytes, i, sums_[i].key.stack, sums_[i].key.cause});
  std::ranges::sort(places, [&](const Place& a, const Place& b) {
    if (a.bytes != b.bytes) return a.bytes > b.bytes;
    if (a.cause != b.cause) return a.cause < b.cause;
    if (a.stack != b.stack) return a.stack < b.stack;
    const SiteKey &left = sums_[a.number].key, &right = sums_[b.number].key;
    if (left.mapping != right.mapping) return mappings_[left.mapping] < mappings_[right.mapping];
    return left.in_large_block < right.in_large_block;
  });
  std::vector<std::uint32_t> numbers;
  numbers.reserve(places.size());
  for (const Place& place : places) numbers.push_back(place.number);
  return numbers;
}

Slice Ledger::slice_of(std::uint32_t site) {
  const Sum& sum = sums_[site];
  return {.site = {.cause = sum.key.cause,
                   .stack = sum.key.stack,
                   .mapping = mappings_[sum.key.mapping],
                   .in_large_block = sum.key.in_large_block},
          .bytes = sum.bytes,
          .exclusive_bytes = sum.exclusive_bytes,
          .variance = sum.variance,
          .huge_bytes = std::min(sum.huge_bytes, sum.bytes),
          .untouched_bytes = take_untouched(sum.key.cause, sum.key.stack),
          .touched = {},
          .advised = advice_shares(site)};
}

Account Ledger::close() {
  claim(Cause::unknown, [](const Fragment& fragment) { return std::optional(Claim{kEmptyStack, fragment.vma->path}); });
  require(pending_bytes_ == 0 && pending_exclusive_bytes_ == 0, "not all that was taken from the ledger is booked");
  require(claimed_bytes_ == resident_bytes_, "the claims of a mapping are not its resident bytes");
  Account account{.time_s = evidence_.time_s,
                  .rss_bytes = rss_bytes_,
                  .skewed = evidence_.skewed,
                  .has_huge = evidence_.has_huge,
                  .pymalloc = {},
                  .slices = {}};
  std::int64_t total_bytes = 0;
  for (const Sum& sum : sums_) total_bytes += sum.bytes;
  require(total_bytes == rss_bytes_, "the causes do not sum to RSS");
  const bool packs = evidence_.names != nullptr;
  if (packs) account.slices.begin_packing(evidence_.names);
  Touchers touched = touch_shares();
  for (const std::uint32_t site : largest_first()) {
    Slice slice = slice_of(site);
    if (const auto found = touched.find(site); found != touched.end()) slice.touched = std::move(found->second);
    if (packs)
      account.slices.add(slice);
    else
      account.slices.open().push_back(std::move(slice));
  }
  if (packs) account.slices.pack();
  return account;
}

}  // namespace whyrss
