// AddressSpace while a walk of its pages is under way: ranges that are given back meanwhile.
#include <utility>

#include "attribute/address_space.h"

namespace whyrss {
namespace {

// A walk takes milliseconds. When more ranges than this were given back meanwhile, all of them are applied at once.
constexpr std::size_t kMostPending = 1024;

}  // namespace

void AddressSpace::final_walk() {
  in_walk_ = false;
  apply(pending_.take_all());
}

bool AddressSpace::gives_back(std::uint64_t start, std::uint64_t size_bytes) const {
  return !pending_.empty() && pending_.overlaps(pages_around(start, size_bytes));
}

void AddressSpace::map_after_walk(std::uint64_t start, std::uint64_t size_bytes, MappingInfo info) {
  const Range pages = pages_around(start, size_bytes);
  postpone({.kind = PendingChange::Kind::map,
            .pages = pages,
            .range = {.start = pages.start, .end = pages.end, .owner = info.owner, .stack = info.stack}});
}

void AddressSpace::allocate_after_walk(std::uint64_t address, std::uint64_t size_bytes, StackId stack, Owner mapper) {
  const Range pages = pages_around(address, size_bytes);
  postpone({.kind = PendingChange::Kind::allocate,
            .pages = pages,
            .range = {.start = address, .end = address + size_bytes, .owner = mapper, .stack = stack}});
}

void AddressSpace::drop_pages_after_walk(std::uint64_t start, std::uint64_t size_bytes) {
  postpone({.kind = PendingChange::Kind::drop_pages, .pages = pages_around(start, size_bytes)});
}

// To relatives the pages are gone at once, as the program meant it.
void AddressSpace::postpone(const PendingChange& change) {
  if (change.pages.start >= change.pages.end) return;
  if (pending_.size() >= kMostPending) apply(pending_.take_all());
  if (follows_dropped_) dropped_.push_back(change.pages);
  pending_.add(change);
}

// What was given back is taken for something else: that is what the walk saw, or will see. Not while a change that
// waited is made: those behind it have their turn.
void AddressSpace::make_way(Range pages) {
  if (in_walk_ && !pending_.empty()) apply(pending_.take(pages));
}

void AddressSpace::apply(const std::vector<PendingChange>& changes) {
  const bool in_walk = std::exchange(in_walk_, false);
  const bool follows_dropped = std::exchange(follows_dropped_, false);  // postpone() has noted them
  for (const PendingChange& change : changes) apply(change);
  in_walk_ = in_walk;
  follows_dropped_ = follows_dropped;
}

void AddressSpace::apply(const PendingChange& change) {
  const auto& [start, end, owner, stack] = change.range;
  switch (change.kind) {
    case PendingChange::Kind::unmap:
      return unmap(change.pages.start, change.pages.end - change.pages.start);
    case PendingChange::Kind::drop_pages:
      return drop_pages(change.pages.start, change.pages.end - change.pages.start);
    case PendingChange::Kind::release:
      return release_block(start, change.tid);
    case PendingChange::Kind::map:
      return map(start, end - start, {owner, stack});
    case PendingChange::Kind::allocate:
      return allocate(start, end - start, stack, owner);
  }
}

}  // namespace whyrss
