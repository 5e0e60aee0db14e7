// The totals of one page walk: every resident byte is claimed once, by the first rule that wants it;
// bytes that no rule claims are `unknown`.
//
// Invariants (required after every step, in release builds): per VMA, claimed + unclaimed = resident;
// at close, claimed = resident per VMA, all that was taken is booked, and the slices sum to RSS.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attribute/evidence.h"
#include "attribute/first_touch_shares.h"
#include "attribute/picture/page_map_builder.h"
#include "model/account.h"

namespace whyrss {

// A stretch of resident bytes about which all evidence says one thing.
struct Fragment {
  std::uint64_t start = 0, end = 0;
  std::size_t vma_index = 0;
  const Vma* vma = nullptr;
  bool file = false, exclusive = false, huge = false;  // as in ResidentRun
  ForkClass fork_class = ForkClass::none;
  const OwnedRange* owned = nullptr;           // nullptr: no event says whose it is
  const OwnedRange* ancestor_owned = nullptr;  // the same at the time of the fork
  bool in_large_block = false;                 // of ancestor_owned: see written_data()
  const StackRange* thread_stack = nullptr;
  const HeldRange* held = nullptr;  // nullptr: no block was logged here
  const LazyRange* lazy = nullptr;  // nullptr: not given up with MADV_FREE

  [[nodiscard]] bool owned_by(Owner owner) const { return owned != nullptr && owned->owner == owner; }
};

// What a rule says about a fragment that it wants.
struct Claim {
  StackId stack = kEmptyStack;
  std::string_view mapping;
  bool in_large_block = false;  // as in Site
};

// A part of what was taken from the ledger.
struct Booking {
  Cause cause = Cause::unknown;
  Claim claim;
  std::int64_t bytes = 0, exclusive_bytes = 0;
  double variance = 0;  // of `bytes`, where they are an estimate from samples
};

class Ledger {
 public:
  // Opens with every resident byte of `evidence` unclaimed. Both must outlive the ledger. `picture`, if any, gets what
  // is claimed; who takes fragments adds what their pages are.
  explicit Ledger(const Evidence& evidence, PageMapBuilder* picture = nullptr);

  // Asks `rule(fragment) -> std::optional<Claim>` about everything that is still unclaimed.
  template <typename Rule>
  void claim(Cause cause, Rule rule) {
    remove_if([&](const Fragment& fragment) {
      const std::optional<Claim> wanted = rule(fragment);
      if (!wanted) return false;
      const auto bytes = static_cast<std::int64_t>(fragment.end - fragment.start);
      add({cause, *wanted, bytes, fragment.exclusive ? bytes : 0});
      add_whole(fragment);
      if (picture_ != nullptr)
        picture_->add({.start = fragment.start, .end = fragment.end, .cause = cause, .stack = wanted->stack});
      return true;
    });
  }

  // Takes all unclaimed fragments that `wants(fragment)`, sorted by address, to be booked in parts: until close()
  // exactly as many bytes, and exclusive bytes, as were taken.
  template <typename Wants>
  std::vector<Fragment> take(Wants wants) {
    std::vector<Fragment> taken;
    remove_if([&](const Fragment& fragment) {
      if (!wants(fragment)) return false;
      taken.push_back(fragment);
      const auto bytes = static_cast<std::int64_t>(fragment.end - fragment.start);
      pending_bytes_ += bytes;
      if (fragment.exclusive) pending_exclusive_bytes_ += bytes;
      return true;
    });
    return taken;
  }
  void book(const Booking& booking);
  // The same for a whole fragment that was taken.
  void book(Cause cause, const Claim& claim, const Fragment& fragment);

  // Of what was taken: who touched it. `claim` must have been booked for that cause.
  void book_touch(Cause cause, const Claim& claim, TouchPart part);
  [[nodiscard]] const FirstTouchShares& touch() const { return touch_; }

  [[nodiscard]] const std::vector<Fragment>& unclaimed() const { return unclaimed_; }

  // The rest becomes `unknown`.
  Account close();

 private:
  struct SiteKey {
    Cause cause;
    StackId stack;
    std::uint32_t mapping;
    bool in_large_block;
    friend bool operator==(const SiteKey&, const SiteKey&) = default;
  };
  struct Sum {
    SiteKey key{};
    std::int64_t bytes = 0, exclusive_bytes = 0;
    double variance = 0;
    std::int64_t huge_bytes = 0;
  };

  // Removes the unclaimed fragments that `claimed(fragment)`, and checks the totals.
  template <typename Claimed>
  void remove_if(Claimed claimed) {
    open_bytes_.assign(resident_bytes_.size(), 0);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < unclaimed_.size(); ++i) {
      const Fragment& fragment = unclaimed_[i];
      if (claimed(fragment)) {
        claimed_bytes_[fragment.vma_index] += static_cast<std::int64_t>(fragment.end - fragment.start);
        continue;
      }
      open_bytes_[fragment.vma_index] += static_cast<std::int64_t>(fragment.end - fragment.start);
      if (kept != i) unclaimed_[kept] = fragment;
      ++kept;
    }
    unclaimed_.resize(kept);
    check();
  }

  void add(const Booking& booking);
  // To the site that was booked last: what is known of the fragment's pages one by one.
  void add_whole(const Fragment& fragment);
  // Its number; the site that was booked last, from now on.
  std::uint32_t number_of(Cause cause, const Claim& claim);
  [[nodiscard]] std::size_t slot_of(const SiteKey& key) const;
  void grow_slots();
  std::uint32_t mapping_index(std::string_view mapping);
  void check() const;
  [[nodiscard]] std::vector<AdviceShare> advice_shares(std::uint32_t site) const;
  // By the sites' numbers: of those that are known to be touched.
  using Touchers = std::unordered_map<std::uint32_t, std::vector<TouchShare>>;
  [[nodiscard]] Touchers touch_shares() const;
  [[nodiscard]] std::vector<std::uint32_t> largest_first() const;
  Slice slice_of(std::uint32_t site);
  // Of all that the site's call allocated or mapped, once for each call; 0 for other causes.
  std::int64_t take_untouched(Cause cause, StackId stack);

  const Evidence& evidence_;
  PageMapBuilder* picture_;
  std::vector<Fragment> unclaimed_;
  std::vector<std::int64_t> resident_bytes_, claimed_bytes_, open_bytes_;  // per VMA
  std::int64_t rss_bytes_ = 0;
  std::int64_t pending_bytes_ = 0, pending_exclusive_bytes_ = 0;  // taken and not yet counted
  // By whose call: of blocks and of the program's mappings, what is not resident.
  std::map<std::pair<Owner, StackId>, std::int64_t> untouched_;
  std::vector<Sum> sums_;             // of each site
  std::vector<std::uint32_t> slots_;  // 1 + a number, by hash of the key; 0: free; a power of 2
  std::uint32_t last_site_ = 0;       // neighbours are often of one site
  std::string_view last_mapping_;
  std::uint32_t last_mapping_index_ = 0;
  std::map<std::string, std::uint32_t, std::less<>> mapping_indices_;
  std::vector<std::string> mappings_;
  FirstTouchShares touch_;
  std::map<std::pair<std::uint32_t, StackId>, std::int64_t> advised_;  // by site's number and advising call
};

}  // namespace whyrss
