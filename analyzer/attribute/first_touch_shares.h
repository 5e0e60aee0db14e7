// Who made the bytes of each site resident, added up from what was touched on its fragments.
//
// A sample that stands for w faults was chosen with probability 1 / w, and speaks for w times the bytes that it brought
// in to the site: unbiased one by one. Sampling takes every w-th fault from a random start on, which spreads better
// than chance: the variance of independent samples, (1 - 1/w) (w bytes)^2 each, is an upper bound. Calls in which the
// kernel took faults were counted, and come first, but for those that stand for others: these are samples too. What
// samples say of a site is fitted to it: down to its bytes where it is more (a fault that did not bring in all that it
// could have), up to them where it falls short by no more than three standard errors. What falls short by more stays
// open: the kernel made it resident in a way that was not counted, or it is older than the samples.
//
// Small mappings that one line made by the dozen (segments of shared memory) have less than a sample each: they are
// fitted together, and each gets its part of what all of them come to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "attribute/evidence.h"
#include "model/account.h"

namespace whyrss {

// What differs by less may be chance.
inline constexpr double kStandardErrors = 3;

// Bytes that a range of Evidence::touched has on something.
struct TouchPart {
  std::uint32_t range = 0;  // its index there
  double bytes = 0;
};

// What is booked under one number.
struct TouchSite {
  std::uint32_t number = 0;
  std::int64_t bytes = 0;
};

class FirstTouchShares {
 public:
  // `touched`: sorted by start; must outlive the totals.
  explicit FirstTouchShares(const std::vector<TouchedRange>& touched);

  [[nodiscard]] bool empty() const { return touched_.empty(); }

  // Calls visit(range index, from, to) for what was touched of [start, end), in order.
  template <typename Visit>
  void visit_within(std::uint64_t start, std::uint64_t end, Visit visit) const {
    const std::uint64_t reach = start - (start < longest_bytes_ ? start : longest_bytes_);
    visit_list(sampled_, first_from(sampled_, reach), start, end, visit);
    if (!counted_.empty()) visit_list(counted_, first_counted(start), start, end, visit);
  }

  // Whether anything was added to that site.
  [[nodiscard]] bool has(std::uint32_t site) const { return site < sites_.size() && !sites_[site].empty(); }
  // To the site of that number: all that was touched of [start, end), which is resident.
  void add(std::uint32_t site, std::uint64_t start, std::uint64_t end);
  // Parts of one range must come one after the other for the errors to be right.
  void add(std::uint32_t site, TouchPart part);

  // Whether too few samples are to be expected on so many bytes to tell anything of them alone.
  [[nodiscard]] bool is_thin(std::int64_t bytes) const;

  // Of each of the sites, which are fitted together: largest first, at most its bytes. `all_by_faults`: a fault may
  // have brought in more than was taken for granted, and nothing else did: samples speak for all of the sites, however
  // much they fall short.
  [[nodiscard]] std::vector<std::vector<TouchShare>> shares(std::span<const TouchSite> sites, bool all_by_faults) const;

 private:
  using Indices = std::vector<std::uint32_t>;  // of touched_, sorted by start
  [[nodiscard]] std::size_t first_from(const Indices& indices, std::uint64_t start) const;
  [[nodiscard]] std::size_t first_counted(std::uint64_t start) const;

  template <typename Visit>
  void visit_list(const Indices& indices, std::size_t first, std::uint64_t start, std::uint64_t end,
                  Visit visit) const {
    for (std::size_t i = first; i < indices.size() && touched_[indices[i]].start < end; ++i) {
      const TouchedRange& range = touched_[indices[i]];
      if (range.end > start)
        visit(indices[i], range.start > start ? range.start : start, range.end < end ? range.end : end);
    }
  }

  struct Sum {
    double bytes = 0, variance = 0;
    TouchPart last;  // the parts of the last range, which was one sample
  };
  struct Toucher {
    StackId stack = kEmptyStack;
    bool by_kernel = false;
    friend auto operator<=>(const Toucher&, const Toucher&) = default;
    [[nodiscard]] bool is_counted(const Sum& sum) const { return by_kernel && sum.variance == 0; }
  };
  // By toucher, sorted: most sites have a few.
  class Sums {
   public:
    Sum& operator[](const Toucher& toucher) {
      const auto place = std::ranges::lower_bound(entries_, toucher, {}, &Entry::first);
      if (place != entries_.end() && place->first == toucher) return place->second;
      return entries_.insert(place, {toucher, {}})->second;
    }
    [[nodiscard]] bool empty() const { return entries_.empty(); }
    [[nodiscard]] auto begin() const { return entries_.begin(); }
    [[nodiscard]] auto end() const { return entries_.end(); }

   private:
    using Entry = std::pair<Toucher, Sum>;
    std::vector<Entry> entries_;
  };
  struct Group {  // of sites that are fitted together
    Sums samples;
    double estimate = 0, variance = 0;
    double bytes = 0;  // without those that were counted
    std::size_t sites = 0;
  };

  [[nodiscard]] const Sums& sums_of(const TouchSite& site) const;
  [[nodiscard]] static double counted_bytes(const Sums& sums);
  [[nodiscard]] std::vector<TouchShare> shares_of(const TouchSite& site, const Group& group, bool all_by_faults) const;

  const std::vector<TouchedRange>& touched_;
  Indices sampled_, counted_;
  std::uint64_t longest_bytes_ = 0;  // of the sampled ones
  double largest_weight_ = 0;        // of them
  std::vector<Sums> sites_;          // by number
};

}  // namespace whyrss
