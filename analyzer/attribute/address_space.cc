#include "attribute/address_space.h"

#include <algorithm>
#include <limits>

namespace whyrss {
namespace {

constexpr std::uint64_t kHighest = std::numeric_limits<std::uint64_t>::max();

// glibc never maps a block below this on its own (M_MMAP_THRESHOLD's default; it only grows by itself),
// and such a block lies 16 bytes behind the start of its mapping (malloc/malloc.c, sysmalloc_mmap).
constexpr std::uint64_t kGlibcMapThresholdBytes = 128ULL * 1024;
constexpr std::uint64_t kGlibcChunkHeaderBytes = 16;

std::uint64_t end_of(std::uint64_t start, std::uint64_t size_bytes) {
  return size_bytes > kHighest - start ? kHighest : start + size_bytes;
}

const std::vector<OwnedRange> kNothingOwned;

}  // namespace

AddressSpace AddressSpace::forked() const {
  static_cast<void>(owned());
  AddressSpace child = *this;
  child.final_walk();
  static_cast<void>(child.owned());
  child.ancestor_owned_ = child.owned_;
  child.inheritance_ = Inheritance{};
  child.touched_.begin_as_fork_child();
  child.dropped_.clear();
  child.follows_dropped_ = false;
  child.last_released_.clear();
  child.threads_.clear();  // only the forking thread lives on; the others' stacks are inherited memory
  return child;
}

Range AddressSpace::pages_around(std::uint64_t start, std::uint64_t size_bytes) const {
  const std::uint64_t end = end_of(start, size_bytes);
  const std::uint64_t mask = page_bytes_ - 1;
  return {start & ~mask, end > kHighest - mask ? kHighest : (end + mask) & ~mask};
}

void AddressSpace::erase_blocks(std::uint64_t start, std::uint64_t end) {
  auto at = blocks_.lower_bound(start);
  if (at != blocks_.begin()) {
    const auto before = std::prev(at);
    if (end_of(before->first, before->second.size_bytes) > start) blocks_.erase(before);
  }
  while (at != blocks_.end() && at->first < end) at = blocks_.erase(at);
}

void AddressSpace::cut_blocks(std::uint64_t start, std::uint64_t end) {
  auto at = blocks_.lower_bound(start);
  if (at != blocks_.begin() && end_of(std::prev(at)->first, std::prev(at)->second.size_bytes) > start) --at;
  while (at != blocks_.end() && at->first < end) {
    const std::uint64_t part_start = at->first, part_end = end_of(part_start, at->second.size_bytes);
    const Block part = at->second;
    CutBlock& cut = cut_blocks_.try_emplace(part.address, CutBlock{part.size_bytes, {}}).first->second;
    at = blocks_.erase(at);
    const auto keep = [&](std::uint64_t from, std::uint64_t to) {
      if (from >= to) return;
      blocks_[from] = {.size_bytes = to - from, .stack = part.stack, .address = part.address};
      cut.parts.push_back(from);
    };
    keep(part_start, start);
    keep(end, part_end);
    if (cut.parts.empty()) cut_blocks_.erase(part.address);
  }
}

std::optional<AddressSpace::Block> AddressSpace::find_block(std::uint64_t address) const {
  const auto whole = blocks_.find(address);
  const bool found = whole != blocks_.end() && whole->second.address == address;
  const auto cut = cut_blocks_.find(address);
  if (cut == cut_blocks_.end()) return found ? std::optional(whole->second) : std::nullopt;
  for (const std::uint64_t start : cut->second.parts)
    if (const auto part = blocks_.find(start); part != blocks_.end() && part->second.address == address)
      return Block{.size_bytes = cut->second.size_bytes, .stack = part->second.stack, .address = address};
  return std::nullopt;
}

void AddressSpace::erase_block(std::uint64_t address) {
  const auto erase_part = [&](std::uint64_t start) {
    const auto part = blocks_.find(start);
    if (part != blocks_.end() && part->second.address == address) blocks_.erase(part);
  };
  erase_part(address);
  const auto cut = cut_blocks_.find(address);
  if (cut == cut_blocks_.end()) return;
  for (const std::uint64_t start : cut->second.parts) erase_part(start);
  cut_blocks_.erase(cut);
}

void AddressSpace::drop_inherited(std::uint64_t start, std::uint64_t end) {
  inheritance_.drop(start, end);
  if (follows_dropped_ && start < end) dropped_.push_back({start, end});
}

void AddressSpace::forget_pages(std::uint64_t start, std::uint64_t end) {
  cut_blocks(start, end);
  held_.erase(start, end);
  drop_inherited(start, end);
  touched_.drop(start, end);
  given_up_.forget(start, end);
  threads_.erase(threads_.lower_bound(start), threads_.lower_bound(end));
  owned_.reset();
}

void AddressSpace::map(std::uint64_t start, std::uint64_t size_bytes, MappingInfo info) {
  const Range pages = pages_around(start, size_bytes);
  make_way(pages);
  forget_pages(pages.start, pages.end);
  mappings_.assign(pages.start, pages.end, info);
}

void AddressSpace::unmap(std::uint64_t start, std::uint64_t size_bytes) {
  const Range pages = pages_around(start, size_bytes);
  if (in_walk_) return postpone({.kind = PendingChange::Kind::unmap, .pages = pages});
  forget_pages(pages.start, pages.end);
  mappings_.erase(pages.start, pages.end);
}

void AddressSpace::remap(std::uint64_t old_start, std::uint64_t old_size_bytes, std::uint64_t new_start,
                         std::uint64_t new_size_bytes, StackId stack) {
  const Range from = pages_around(old_start, old_size_bytes);
  const Range to = pages_around(new_start, new_size_bytes);
  const std::uint64_t kept_bytes = std::min(from.end - from.start, to.end - to.start);
  if (to.start == from.start) {
    if (from.end > to.end) unmap(to.end, from.end - to.end);
    if (to.end > from.end) map(from.end, to.end - from.end, {Owner::program, stack});
    return;
  }
  make_way(from);
  std::vector<OwnedRange> moved;
  mappings_.visit_within(from.start, from.start + kept_bytes,
                         [&](std::uint64_t start, std::uint64_t end, const MappingInfo& info) {
                           moved.push_back({start - from.start, end - from.start, info.owner, info.stack});
                         });
  const std::vector<ForkRange> inherited = inheritance_.within(from.start, from.start + kept_bytes);
  const TouchedPages::Part touched = touched_.within(from.start, from.start + kept_bytes);
  const std::vector<AdvisedRange> given_up = given_up_.within(from.start, from.start + kept_bytes);
  unmap(from.start, from.end - from.start);
  map(to.start, to.end - to.start, {Owner::program, stack});
  for (const OwnedRange& range : moved)
    mappings_.assign(to.start + range.start, to.start + range.end, {range.owner, range.stack});
  for (const ForkRange& range : inherited)
    inheritance_.restore(
        {to.start + (range.start - from.start), to.start + (range.end - from.start), range.fork_class});
  touched_.restore(touched, to.start);
  given_up_.restore(given_up, from.start, to.start);
}

void AddressSpace::move_break(std::uint64_t old_break, std::uint64_t new_break, MappingInfo info) {
  if (new_break > old_break) {
    make_way({old_break, new_break});
    mappings_.assign(old_break, new_break, info);
  } else {
    unmap(pages_around(new_break, 0).end, old_break - new_break);
  }
  owned_.reset();
}

void AddressSpace::drop_pages(std::uint64_t start, std::uint64_t size_bytes) {
  drop_inherited(start, end_of(start, size_bytes));
  touched_.drop(start, end_of(start, size_bytes));
  given_up_.forget(start, end_of(start, size_bytes));
}

void AddressSpace::give_up_pages(std::uint64_t start, std::uint64_t size_bytes, StackId stack) {
  const Range pages = pages_around(start, size_bytes);
  make_way(pages);
  given_up_.advise(pages.start, pages.end, stack);
}

void AddressSpace::allocate(std::uint64_t address, std::uint64_t size_bytes, StackId stack, Owner mapper) {
  const std::uint64_t end = end_of(address, size_bytes);
  if (address >= end) return;
  const Range pages = pages_around(address, size_bytes);
  make_way(pages);
  erase_block(address);
  erase_blocks(address, end);
  blocks_[address] = {.size_bytes = size_bytes, .stack = stack, .address = address};
  held_.assign(pages.start, pages.end, stack);
  given_up_.reuse(pages.start, pages.end);
  threads_.erase(threads_.lower_bound(address), threads_.lower_bound(end));
  // A mapping that holds a block belongs to the block's allocator, even if the program seemed to map it.
  const auto mapping = mappings_.find(address);
  if (mapping != mappings_.end() && (mapping->second.value.owner == Owner::program || mapper == Owner::library))
    mapping->second.value.owner = mapper;
  owned_.reset();
}

bool AddressSpace::is_own_mapping_of_glibc(std::uint64_t address, std::uint64_t size_bytes) {
  if (!glibc_heap_ || size_bytes < kGlibcMapThresholdBytes) return false;
  if ((address & (page_bytes_ - 1)) != kGlibcChunkHeaderBytes) return false;
  const bool in_heap = address >= heap_.start && address < heap_.end;
  return !in_heap && mappings_.find(address) == mappings_.end();
}

void AddressSpace::release(std::uint64_t address, std::uint32_t tid) {
  if (!in_walk_) return release_block(address, tid);
  const std::optional<Block> found = find_block(address);
  // Where it is not known its allocation may wait too.
  const bool waits = found ? is_own_mapping_of_glibc(address, found->size_bytes) : gives_back(address, 1);
  if (!waits) return release_block(address, tid);
  const std::uint64_t size_bytes = found ? found->size_bytes : 1;
  postpone({.kind = PendingChange::Kind::release,
            .pages = pages_around(address, size_bytes),
            .range = {.start = address, .end = end_of(address, size_bytes)},
            .tid = tid});
}

void AddressSpace::release_block(std::uint64_t address, std::uint32_t tid) {
  const std::optional<Block> found = find_block(address);
  if (!found) return;
  Released& released = last_released_[tid];
  released = {address, *found, {}, {}};
  if (is_own_mapping_of_glibc(address, found->size_bytes)) {
    const Range pages = pages_around(address, found->size_bytes);
    released.inherited = inheritance_.within(pages.start, pages.end);
    drop_inherited(pages.start, pages.end);
    released.touched = touched_.within(pages.start, pages.end);
    touched_.drop(pages.start, pages.end);
    given_up_.forget(pages.start, pages.end);
    held_.erase(pages.start, pages.end);
    mappings_.erase(pages.start, pages.end);  // what was mapped over it goes too
  }
  erase_block(address);
  owned_.reset();
}

void AddressSpace::undo_release(std::uint64_t address, std::uint32_t tid) {
  if (pending_.cancel_release(address, tid)) return;
  const auto found = last_released_.find(tid);
  if (found == last_released_.end() || found->second.address != address) return;
  const Released released = std::move(found->second);
  last_released_.erase(found);
  allocate(address, released.block.size_bytes, released.block.stack);
  for (const ForkRange& range : released.inherited) inheritance_.restore(range);
  touched_.restore(released.touched, released.touched.start);
}

// Where no recorded call mapped the page, no recorded call will give it back: glibc's trimming, its thread stacks.
void AddressSpace::touch(const TouchSample& sample) {
  make_way({sample.page, sample.page + 1});
  touched_.add(sample, shares(sample.page), mappings_.find(sample.page) != mappings_.end());
}

bool AddressSpace::may_copy(const TouchSample& sample) {
  TouchSample fault = sample;
  fault.page &= ~(page_bytes_ - 1);
  return touched_.is_candidate(fault, shares(fault.page));
}

// Whether it inherited the page there and has not copied it.
bool AddressSpace::shares(std::uint64_t address) const {
  const std::vector<ForkRange> inherited = inheritance_.within(address, address + 1);
  return !inherited.empty() && inherited.front().fork_class == ForkClass::shared;
}

void AddressSpace::touch_by_kernel(std::uint64_t start, std::uint64_t size_bytes, std::uint64_t faults, StackId stack,
                                   std::uint64_t time_ns, std::uint32_t calls) {
  const Range pages = pages_around(start, size_bytes);
  make_way(pages);
  touched_.add(
      {.start = pages.start, .end = pages.end, .faults = faults, .stack = stack, .time_ns = time_ns, .calls = calls});
}

void AddressSpace::start_thread(std::uint64_t stack_pointer, std::uint64_t thread_pointer, StackId stack) {
  make_way(pages_around(stack_pointer, 1));
  threads_[stack_pointer] = {thread_pointer, stack};
}

const std::vector<OwnedRange>& AddressSpace::owned() const {
  if (owned_ != nullptr) return *owned_;
  std::vector<OwnedRange> ranges;
  ranges.reserve(mappings_.intervals().size() + blocks_.size());
  auto mapping = mappings_.intervals().begin();
  const auto mappings_end = mappings_.intervals().end();
  std::uint64_t done = 0;  // everything below is in `ranges`
  const auto add_mappings_below = [&](std::uint64_t limit) {
    for (; mapping != mappings_end && mapping->first < limit; ++mapping) {
      const std::uint64_t start = std::max(mapping->first, done);
      const std::uint64_t end = std::min(mapping->second.end, limit);
      if (start < end) ranges.push_back({start, end, mapping->second.value.owner, mapping->second.value.stack});
      if (mapping->second.end > limit) break;
    }
    done = limit;
  };
  for (const auto& [address, block] : blocks_) {
    const std::uint64_t end = end_of(address, block.size_bytes);
    add_mappings_below(address);
    ranges.push_back({address, end, Owner::block, block.stack});
    done = end;
  }
  add_mappings_below(kHighest);
  owned_ = std::make_shared<const std::vector<OwnedRange>>(std::move(ranges));
  return *owned_;
}

const std::vector<OwnedRange>& AddressSpace::ancestor_owned() const {
  return ancestor_owned_ != nullptr ? *ancestor_owned_ : kNothingOwned;
}

StackId AddressSpace::block_stack(std::uint64_t address) const {
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return kEmptyStack;
  const auto& [start, block] = *--next;
  return address < end_of(start, block.size_bytes) ? block.stack : kEmptyStack;
}

std::vector<HeldRange> AddressSpace::held_blocks() const {
  std::vector<HeldRange> ranges;
  ranges.reserve(held_.intervals().size());
  for (const auto& [start, interval] : held_.intervals()) ranges.push_back({start, interval.end, interval.value});
  return ranges;
}

std::vector<StackRange> AddressSpace::thread_stacks(const std::vector<Vma>& vmas) const {
  std::vector<StackRange> ranges;
  for (const auto& [stack_pointer, thread] : threads_) {
    const auto vma = std::ranges::upper_bound(vmas, stack_pointer, {}, &Vma::end);
    if (vma == vmas.end() || vma->start > stack_pointer || !is_private_anonymous(*vma) || vma->path == "[heap]")
      continue;
    // The TCB and the static TLS block end within a page or two behind the thread pointer.
    const std::uint64_t top = thread.thread_pointer >= stack_pointer && thread.thread_pointer < vma->end
                                  ? pages_around(thread.thread_pointer, page_bytes_).end
                                  : pages_around(stack_pointer, 1).end;
    const std::uint64_t start = ranges.empty() ? vma->start : std::max(vma->start, ranges.back().end);
    const std::uint64_t end = std::min(vma->end, top);
    if (start < end) ranges.push_back({start, end, thread.stack});
  }
  return ranges;
}

}  // namespace whyrss
