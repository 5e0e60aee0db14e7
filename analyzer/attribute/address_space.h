// Who owns which addresses of one process image, replayed from its events: mappings, live blocks,
// thread stacks, what was inherited at fork. Says nothing about residency.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "attribute/advised_pages.h"
#include "attribute/evidence.h"
#include "attribute/inheritance.h"
#include "attribute/interval_map.h"
#include "attribute/pending_changes.h"
#include "attribute/touched_pages.h"

namespace whyrss {

struct MappingInfo {
  Owner owner = Owner::program;
  StackId stack = kEmptyStack;
  friend bool operator==(const MappingInfo&, const MappingInfo&) = default;
};

class AddressSpace {
 public:
  // `glibc_heap`: malloc is glibc's, whose mmap and munmap of single large blocks no hook can see.
  explicit AddressSpace(std::uint64_t page_bytes = 4096, bool glibc_heap = false)
      : page_bytes_(page_bytes), glibc_heap_(glibc_heap), touched_(page_bytes) {}

  // The picture that a fork child begins with. What it inherited is not known yet.
  [[nodiscard]] AddressSpace forked() const;

  void map(std::uint64_t start, std::uint64_t size_bytes, MappingInfo info);
  void unmap(std::uint64_t start, std::uint64_t size_bytes);
  // Moved bytes keep their owner; bytes that were added belong to `stack`.
  void remap(std::uint64_t old_start, std::uint64_t old_size_bytes, std::uint64_t new_start,
             std::uint64_t new_size_bytes, StackId stack);
  void move_break(std::uint64_t old_break, std::uint64_t new_break, MappingInfo info);
  // MADV_DONTNEED and its like: the pages are gone, the mapping stays.
  void drop_pages(std::uint64_t start, std::uint64_t size_bytes);
  // MADV_FREE: the pages go when the kernel needs them, and may be written to before that.
  void give_up_pages(std::uint64_t start, std::uint64_t size_bytes, StackId stack);
  [[nodiscard]] const AdvisedPages& given_up() const { return given_up_; }

  // `mapper`: what the mapping around the block is of from now on, allocator or library.
  void allocate(std::uint64_t address, std::uint64_t size_bytes, StackId stack, Owner mapper = Owner::allocator);
  void release(std::uint64_t address, std::uint32_t tid);
  void undo_release(std::uint64_t address, std::uint32_t tid);

  void start_thread(std::uint64_t stack_pointer, std::uint64_t thread_pointer, StackId stack);

  void inherit(std::uint64_t start, std::uint64_t end) { inheritance_.add(start, end); }
  Inheritance& inheritance() { return inheritance_; }
  // Ranges whose pages were given back since this was asked last: whatever is there later is other memory.
  std::vector<Range> take_dropped() { return std::exchange(dropped_, {}); }
  void follow_dropped(bool follow) { follows_dropped_ = follow; }
  [[nodiscard]] const Inheritance& inheritance() const { return inheritance_; }

  // A sampled page fault, and a call in which the kernel took faults.
  void touch(const TouchSample& sample);
  // Whether that fault may have copied a page which a fork had made shared.
  [[nodiscard]] bool may_copy(const TouchSample& sample);
  void touch_by_kernel(std::uint64_t start, std::uint64_t size_bytes, std::uint64_t faults, StackId stack,
                       std::uint64_t time_ns, std::uint32_t calls = 1);
  TouchedPages& touched() { return touched_; }
  [[nodiscard]] const TouchedPages& touched() const { return touched_; }

  // A walk of the pages goes on until final_walk(): ranges given back meanwhile keep their owner until then, unless
  // their addresses are reused. Of blocks this applies to those whose pages free() unmaps itself.
  void begin_walk() { in_walk_ = true; }
  void final_walk();
  [[nodiscard]] bool in_walk() const { return in_walk_; }
  // Whether something of these addresses was given back since the walk began.
  [[nodiscard]] bool gives_back(std::uint64_t start, std::uint64_t size_bytes) const;
  // Of addresses that were given back since the walk began and that it saw before: they are the new owner's when it is
  // over.
  void map_after_walk(std::uint64_t start, std::uint64_t size_bytes, MappingInfo info);
  void allocate_after_walk(std::uint64_t address, std::uint64_t size_bytes, StackId stack,
                           Owner mapper = Owner::allocator);
  // Pages that went while the walk was under way.
  void drop_pages_after_walk(std::uint64_t start, std::uint64_t size_bytes);

  // Tells what the last walk saw, so that blocks inside [heap] are not taken for mappings of their own.
  void see_heap(Range heap) { heap_ = heap; }

  // Sorted, disjoint; live blocks are cut out of the mappings that they lie in.
  [[nodiscard]] const std::vector<OwnedRange>& owned() const;
  [[nodiscard]] const std::vector<OwnedRange>& ancestor_owned() const;
  [[nodiscard]] std::vector<HeldRange> held_blocks() const;
  // The call that allocated the live block which holds `address`; empty when none is known.
  [[nodiscard]] StackId block_stack(std::uint64_t address) const;
  // The stacks of the threads seen so far, as far as `vmas` still hold them.
  [[nodiscard]] std::vector<StackRange> thread_stacks(const std::vector<Vma>& vmas) const;

 private:
  struct Block {
    std::uint64_t size_bytes = 0;
    StackId stack = kEmptyStack;
    std::uint64_t address = 0;  // of the block whose part this is; its own where nothing was taken out of it
  };
  // A block out of which something was unmapped, or over which something was mapped.
  struct CutBlock {
    std::uint64_t size_bytes = 0;      // as it was allocated
    std::vector<std::uint64_t> parts;  // where what is left of it begins; may name what is there no more
  };
  struct Thread {
    std::uint64_t thread_pointer = 0;
    StackId stack = kEmptyStack;
  };
  struct Released {
    std::uint64_t address = 0;
    Block block;
    std::vector<ForkRange> inherited;
    TouchedPages::Part touched;
  };

  [[nodiscard]] Range pages_around(std::uint64_t start, std::uint64_t size_bytes) const;
  [[nodiscard]] bool is_own_mapping_of_glibc(std::uint64_t address, std::uint64_t size_bytes);
  [[nodiscard]] bool shares(std::uint64_t address) const;
  void postpone(const PendingChange& change);
  void make_way(Range pages);
  void apply(const std::vector<PendingChange>& changes);
  void apply(const PendingChange& change);
  void release_block(std::uint64_t address, std::uint32_t tid);
  void erase_blocks(std::uint64_t start, std::uint64_t end);
  // What lies there is no block any more; the rest of the blocks stays.
  void cut_blocks(std::uint64_t start, std::uint64_t end);
  // As it was allocated; nothing when no block of that address is known.
  [[nodiscard]] std::optional<Block> find_block(std::uint64_t address) const;
  void erase_block(std::uint64_t address);
  void forget_pages(std::uint64_t start, std::uint64_t end);
  void drop_inherited(std::uint64_t start, std::uint64_t end);

  std::uint64_t page_bytes_;
  bool glibc_heap_;
  IntervalMap<MappingInfo> mappings_;
  std::map<std::uint64_t, Block> blocks_;  // and parts of blocks, disjoint
  std::map<std::uint64_t, CutBlock> cut_blocks_;
  IntervalMap<StackId> held_;                // who allocated there last
  std::map<std::uint64_t, Thread> threads_;  // by stack pointer
  std::map<std::uint32_t, Released> last_released_;
  Inheritance inheritance_;
  TouchedPages touched_;
  AdvisedPages given_up_;
  std::vector<Range> dropped_;
  bool follows_dropped_ = false, in_walk_ = false;
  PendingChanges pending_;
  Range heap_;
  std::shared_ptr<const std::vector<OwnedRange>> ancestor_owned_;
  mutable std::shared_ptr<const std::vector<OwnedRange>> owned_;  // nullptr: to be made again
};

}  // namespace whyrss
