#include "attribute/heap.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "attribute/heap_owner.h"
#include "attribute/heap_pages.h"
#include "attribute/heap_shares.h"
#include "attribute/heap_touch.h"
#include "attribute/retained_weights.h"

namespace whyrss {
namespace {

// CPython's small-object allocator hands out multiples of this (ALIGNMENT in Objects/obmalloc.c, 64-bit).
constexpr std::uint64_t kPymallocUnitBytes = 16;

// Of a damaged recording that claims a heap of a hundred terabytes no page list can be made.
constexpr std::uint64_t kMostPages = std::uint64_t{1} << 25;

// What is on the pages of one stratum, blocks of AddressSpace apart.
struct StratumTotals {
  std::int64_t live_bytes = 0, slack_bytes = 0, retained_bytes = 0, metadata_bytes = 0, unexplained_bytes = 0,
               unsplit_bytes = 0;
  double sampled_headers = 0;  // bytes that malloc keeps beside the blocks that samples stand for
  HeapShares live, slack, retained, unsplit;
};

class HeapAttribution {
 public:
  HeapAttribution(const Evidence& evidence, const HeapPages& pages)
      : evidence_(evidence), pages_(pages), totals_(pages.strata().size()) {
    if (evidence.small_blocks != nullptr)
      evidence.small_blocks->for_each([&](const LiveBlock& block) { add_small_block(block); });
    for (const LargePart& part : pages.large_parts()) {
      const HeapPage& page = pages.pages()[part.page];
      totals_[page.stratum].slack.add_known(part.stack, page.pinned_by(part.bytes));
    }
    add_pages();
  }

  // Pages that one live block fills are not listed.
  void draw(PageMapBuilder& picture, const std::vector<Fragment>& heap) const {
    for (const HeapPage& page : pages_.pages()) picture.add(picture_of(page));
    for (const Fragment& fragment : heap) {
      PageMapRun filled{.start = 0,
                        .end = 0,
                        .cause = Cause::heap_live,
                        .stack = fragment.owned_by(Owner::block) ? fragment.owned->stack : kEmptyStack};
      for (std::uint64_t at = fragment.start & ~(kLivePageBytes - 1); at < fragment.end; at += kLivePageBytes) {
        if (pages_.page(at) != nullptr) continue;
        filled.start = std::max(at, fragment.start);
        filled.end = std::min(at + kLivePageBytes, fragment.end);
        picture.add(filled);
      }
    }
  }

  HeapSummary book(Ledger& ledger, const std::vector<Fragment>& heap) const {
    const HeapTouch touch(evidence_, pages_, by_arena_, ledger.touch(), heap);
    HeapSummary summary{.exact = true, .pymalloc = {}};
    for (std::size_t i = 0; i < totals_.size(); ++i) {
      const HeapStratum& stratum = pages_.strata()[i];
      const StratumTotals& totals = totals_[i];
      summary.exact &= pages_.knows(stratum);
      if (stratum.pymalloc) {
        summary.pymalloc.live += totals.live_bytes;
        if (by_arena_[i]) summary.pymalloc.live_by_arena += totals.live_bytes;
        summary.pymalloc.slack += totals.slack_bytes;
        summary.pymalloc.retained += totals.retained_bytes;
      }
      Samples samples = evidence_.exact_blocks ? Samples::complete : Samples::scaled;
      if (!pages_.knows(stratum)) samples = Samples::estimated;
      const auto share_out = [&](Cause cause, const std::vector<HeapShares::Share>& shares) {
        book(ledger, cause, stratum, shares);
        book_touch(ledger, cause, stratum, shares, touch.parts(static_cast<std::uint32_t>(i), cause));
      };
      share_out(Cause::heap_live, totals.live.share_out(totals.live_bytes, samples));
      share_out(Cause::heap_slack, totals.slack.share_out(totals.slack_bytes, samples));
      share_out(Cause::heap_retained, totals.retained.share_out(totals.retained_bytes, samples));
      share_out(Cause::heap_unsplit, totals.unsplit.share_out(totals.unsplit_bytes, Samples::complete));
      share_out(Cause::heap_metadata, {{kEmptyStack, totals.metadata_bytes, 0}});
      share_out(Cause::unknown, {{kEmptyStack, totals.unexplained_bytes, 0}});
    }
    return summary;
  }

 private:
  void add_small_block(const LiveBlock& block) {
    std::uint64_t size_bytes = block.size_bytes;
    std::uint32_t stratum = pages_.spot(block.address).stratum;
    if (stratum != HeapPages::kNone && pages_.strata()[stratum].pymalloc)
      size_bytes = (size_bytes + kPymallocUnitBytes - 1) / kPymallocUnitBytes * kPymallocUnitBytes;
    double live = 0, slack = 0;
    const double header_per_byte = evidence_.block_header_bytes / static_cast<double>(std::max(block.size_bytes, 1U));
    const auto add = [&] {  // a block seldom lies in two
      if (live > 0) totals_[stratum].live.add_samples(block.stack, live, block.weight);
      if (live > 0 && !pages_.strata()[stratum].pymalloc)
        totals_[stratum].sampled_headers += live * static_cast<double>(block.weight) * header_per_byte;
      if (slack > 0) totals_[stratum].slack.add_samples(block.stack, slack, block.weight);
      live = slack = 0;
    };
    visit_pages(block.address, size_bytes, [&](std::uint64_t at, std::int64_t bytes) {
      const HeapPages::Spot spot = pages_.spot(at);
      if (spot.stratum == HeapPages::kNone) return;
      if (spot.stratum != stratum) add();
      stratum = spot.stratum;
      live += static_cast<double>(bytes);
      slack += static_cast<double>(bytes) * static_cast<double>(spot.pinned_per_byte);
    });
    add();
  }

  void add_pages() {
    std::vector<RetainedWeights> retained_weights(totals_.size());
    for (std::size_t i = 0; i < totals_.size(); ++i)
      by_arena_.push_back(pages_.strata()[i].pymalloc && !totals_[i].live.has_samples());
    std::vector<std::int64_t> unknown_bytes(totals_.size());
    for (const HeapPage& page : pages_.pages()) {
      const HeapStratum& stratum = pages_.strata()[page.stratum];
      StratumTotals& totals = totals_[page.stratum];
      totals.live_bytes += page.small_bytes;
      const bool by_arena = by_arena_[page.stratum];
      if (by_arena) totals.live.add_known(page.mapped_stack, page.small_bytes);
      switch (use_of(page)) {
        case PageUse::unknown:
          unknown_bytes[page.stratum] += page.free_bytes();
          break;
        case PageUse::live:
          totals.slack_bytes += page.free_bytes();
          if (by_arena) totals.slack.add_known(page.mapped_stack, static_cast<double>(page.free_bytes()));
          break;
        case PageUse::retained:
          totals.retained_bytes += page.heap_bytes;
          find_retained(page, stratum, totals, retained_weights[page.stratum]);
          break;
        case PageUse::unsplit:
          totals.unsplit_bytes += page.heap_bytes;
          totals.unsplit.add_known(page.mapped_stack, page.heap_bytes);
          break;
        case PageUse::blockless:
          add_blockless(page, totals);
      }
    }
    static const BlockTurnover kNone;
    const BlockTurnover& turnover = evidence_.small_blocks == nullptr ? kNone : evidence_.small_blocks->turnover();
    for (std::size_t i = 0; i < totals_.size(); ++i) {
      retained_weights[i].add_to(totals_[i].retained, turnover);
      estimate_live(totals_[i], unknown_bytes[i]);
      take_headers_off_slack(totals_[i]);
    }
  }

  enum class PageUse { unknown, live, retained, unsplit, blockless };
  [[nodiscard]] PageUse use_of(const HeapPage& page) const {
    const HeapStratum& stratum = pages_.strata()[page.stratum];
    if (!pages_.knows(stratum)) return PageUse::unknown;
    if (page.live_bytes() > 0) return PageUse::live;
    if (page.ever_held) return PageUse::retained;
    return is_unsplit(evidence_, page, stratum) ? PageUse::unsplit : PageUse::blockless;
  }

  // As the totals have it.
  [[nodiscard]] PageMapRun picture_of(const HeapPage& page) const {
    PageMapRun run{.start = page.start, .end = page.start + kLivePageBytes, .cause = Cause::heap_live};
    switch (use_of(page)) {
      case PageUse::unknown:
        return run;
      case PageUse::live:
        run.live_sixteenths = static_cast<std::uint8_t>(
            std::max<std::int64_t>((page.live_bytes() * PageMapRun::kWholePage + page.heap_bytes / 2) /
                                       std::max<std::int64_t>(page.heap_bytes, 1),
                                   1));
        run.stack = largest_on(page);
        return run;
      case PageUse::retained:
        run.cause = Cause::heap_retained;
        run.stack = last_holder(evidence_, page, pages_.strata()[page.stratum]);
        return run;
      case PageUse::unsplit:
        run.cause = Cause::heap_unsplit;
        run.stack = page.mapped_stack;
        return run;
      case PageUse::blockless:
        break;
    }
    run.cause = page.blockless == BlocklessPage::metadata    ? Cause::heap_metadata
                : page.blockless == BlocklessPage::huge_page ? Cause::heap_retained
                                                             : Cause::unknown;
    return run;
  }

  [[nodiscard]] StackId largest_on(const HeapPage& page) const {
    const std::span<const LargePart> parts = pages_.large_parts_on(page);
    if (const auto largest = std::ranges::max_element(parts, {}, &LargePart::bytes);
        largest != parts.end() && largest->bytes >= page.small_bytes)
      return largest->stack;
    return evidence_.small_blocks != nullptr ? evidence_.small_blocks->last_on_page(page.start) : kEmptyStack;
  }

  static void add_blockless(const HeapPage& page, StratumTotals& totals) {
    switch (page.blockless) {
      case BlocklessPage::metadata:
        totals.metadata_bytes += page.heap_bytes;
        break;
      case BlocklessPage::huge_page:
        totals.retained_bytes += page.heap_bytes;
        totals.retained.add_known(kEmptyStack, page.heap_bytes);
        break;
      case BlocklessPage::unexplained:
        totals.unexplained_bytes += page.heap_bytes;
        break;
    }
  }

  void find_retained(const HeapPage& page, const HeapStratum& stratum, StratumTotals& totals,
                     RetainedWeights& retained_weights) const {
    const StackId last = last_holder(evidence_, page, stratum);
    const bool sampled =
        evidence_.small_blocks != nullptr && evidence_.small_blocks->last_on_page(page.start) != kEmptyStack;
    if (evidence_.exact_blocks || (!sampled && (stratum.pymalloc || last != kEmptyStack))) {
      totals.retained.add_known(last, page.heap_bytes);
      return;
    }
    if (sampled)
      retained_weights.add(evidence_.small_blocks->last_kind_on_page(page.start), page.heap_bytes);
    else
      retained_weights.add_silent();
  }

  // Where only samples tell of small blocks: what they do not explain counts as kept by the allocator.
  static void estimate_live(StratumTotals& totals, std::int64_t unknown_bytes) {
    const double estimate = std::min(totals.live.estimated_bytes(), static_cast<double>(unknown_bytes));
    const auto live_bytes = static_cast<std::int64_t>(estimate);
    totals.live_bytes += live_bytes;
    totals.retained_bytes += unknown_bytes - live_bytes;
  }

  // They lie beside live blocks, and were never free.
  static void take_headers_off_slack(StratumTotals& totals) {
    const double sampled = totals.live.estimated_bytes();
    if (sampled <= 0) return;
    const double headers = totals.sampled_headers / sampled * static_cast<double>(totals.live_bytes);
    const std::int64_t bytes = std::min(std::llround(headers), static_cast<long long>(totals.slack_bytes));
    totals.slack_bytes -= bytes;
    totals.metadata_bytes += bytes;
  }

  static void book(Ledger& ledger, Cause cause, const HeapStratum& stratum,
                   const std::vector<HeapShares::Share>& shares) {
    for (const HeapShares::Share& share : shares)
      ledger.book({.cause = cause,
                   .claim = {share.stack, stratum.mapping},
                   .bytes = share.bytes,
                   .exclusive_bytes = stratum.exclusive ? share.bytes : 0,
                   .variance = share.variance});
  }

  // Sites whose bytes are known from samples alone may be missing: their touch goes to the bytes without a known site.
  static void book_touch(Ledger& ledger, Cause cause, const HeapStratum& stratum,
                         const std::vector<HeapShares::Share>& shares, std::span<const HeapTouchPart> parts) {
    const auto largest = std::ranges::max_element(shares, {}, &HeapShares::Share::bytes);
    if (largest == shares.end() || largest->bytes == 0) return;
    const StackId otherwise = shares.front().stack == kEmptyStack ? kEmptyStack : largest->stack;
    for (const HeapTouchPart& part : parts) {
      const bool booked = std::ranges::binary_search(shares, part.site, {}, &HeapShares::Share::stack);
      ledger.book_touch(cause, {booked ? part.site : otherwise, stratum.mapping}, part.part);
    }
  }

  const Evidence& evidence_;
  const HeapPages& pages_;
  std::vector<StratumTotals> totals_;  // as HeapPages::strata()
  std::vector<bool> by_arena_;         // of them those whose live bytes stand under the call that mapped the page
};

// No heap was recorded, or it has over 128 GiB in small blocks: these bytes are reported as one live sum.
HeapSummary book_as_live(Ledger& ledger, const std::vector<Fragment>& heap, PageMapBuilder* picture) {
  for (const Fragment& fragment : heap) {
    if (picture != nullptr)
      picture->add({.start = fragment.start,
                    .end = fragment.end,
                    .cause = Cause::heap_live,
                    .stack = fragment.owned_by(Owner::block) ? fragment.owned->stack : kEmptyStack});
    if (fragment.owned_by(Owner::block)) continue;
    ledger.book(Cause::heap_live, {kEmptyStack, fragment.vma->path}, fragment);
  }
  return {};
}

}  // namespace

HeapSummary book_heap(Ledger& ledger, const Evidence& evidence, PageMapBuilder* picture) {
  const HeapOwner owner(evidence);
  const std::vector<Fragment> heap = ledger.take(
      [&](const Fragment& fragment) { return is_private_anonymous(*fragment.vma) && owner.owns(fragment); });
  for (const Fragment& fragment : heap)
    if (fragment.owned_by(Owner::block))
      ledger.book(Cause::heap_live, {fragment.owned->stack, fragment.vma->path}, fragment);
  if (HeapPages::most_pages(heap) > kMostPages) return book_as_live(ledger, heap, picture);
  const HeapPages pages(evidence, heap);
  const HeapAttribution attribution(evidence, pages);
  if (picture != nullptr) attribution.draw(*picture, heap);
  return attribution.book(ledger, heap);
}

}  // namespace whyrss
