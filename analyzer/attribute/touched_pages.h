// Who made the pages of one process image resident, as far as they still are: sampled page faults, and calls in which
// the kernel took faults. Replayed from the events like AddressSpace, which holds it.
//
//   a fault on a page that was absent         a first touch: it lives until its page goes
//   ... that a fork had made shared           a candidate copy: the write that copied the page, if a copy was made.
//                                             Becomes who touched it where the walk says "copied" (ForkClass); in a
//                                             child who touched the original is forgotten there
//   ... of a file, present at the last walk   the write that made a private copy, if the next walk shows one
//   ... that was there otherwise              nothing (NUMA hint, mprotect), where all that takes pages away is seen;
//                                             else its page had gone meanwhile, and it is a first touch
//
// "Was there" is what the last walk saw, that a fault since was sampled, or that a child has inherited it since. What
// goes: munmap and its like at once, all else at the walk that does not find it; a walk says nothing about faults after
// it began. Pages that a large block took over later have no toucher: the report names who first used the block.
// Every first touch is a fault, so with each sample weighted by the faults that it stands for the sums are
// unbiased. Memory: one sample per page, and only pages that were there at the last walk or were touched since.
#pragma once

#include <cstdint>
#include <vector>

#include "attribute/evidence.h"
#include "attribute/interval_map.h"
#include "attribute/touch_samples.h"

namespace whyrss {

// Faults that the kernel took within one call on memory [start, end).
struct KernelTouch {
  std::uint64_t start = 0, end = 0;
  std::uint64_t faults = 0;
  StackId stack = kEmptyStack;
  std::uint64_t time_ns = 0;
  std::uint32_t calls = 1;  // that this one stands for
};

// What a walk that knows addresses saw.
struct WalkView {
  std::uint64_t begin_ns = 0;
  const std::vector<Vma>& vmas;
  const std::vector<ResidentRun>& runs;
  const std::vector<ForkRange>& inherited;  // after it took the walk in
};

// What became of a process's pages since its last walk, as far as events tell.
struct SinceWalk {
  std::vector<ResidentRun> left;       // that the walk found, and nothing gave back
  std::vector<Range> gone;             // what was given back, or mapped anew
  std::vector<TouchSample> touched;    // faults on pages that were absent, by page
  std::vector<TouchSample> written;    // candidate copies, by page: see TouchedPages::copy_candidates
  std::vector<KernelTouch> by_kernel;  // calls, by start
};

class TouchedPages {
 public:
  explicit TouchedPages(std::uint64_t page_bytes = 4096) : page_bytes_(page_bytes) {}

  // `shared`: a page that this process inherited and has not copied. `watched`: its pages go by calls that are seen.
  void add(const TouchSample& sample, bool shared, bool watched);
  // Whether add() would take it for a candidate copy; its `page` is an address of a page.
  [[nodiscard]] bool is_candidate(const TouchSample& fault, bool shared);
  void add(const KernelTouch& touch);

  // A large block was made there: who touched its whole pages before, touched others' blocks.
  void begin_block(std::uint64_t address, std::uint64_t size_bytes, std::uint64_t time_ns);
  void drop(std::uint64_t start, std::uint64_t end);
  // What lies in a range, to be put back there or elsewhere after drop().
  struct Part;
  [[nodiscard]] Part within(std::uint64_t start, std::uint64_t end) const;
  void restore(const Part& part, std::uint64_t new_start);

  // In a copy: it becomes the child's, whose faults begin. In the original: it forked one.
  void begin_as_fork_child();
  void note_fork(std::uint64_t time_ns);
  // In the original: the child got these pages, so they were there at the fork.
  void note_inherited(std::uint64_t start, std::uint64_t end, std::uint64_t fork_ns);
  // In the child, which lives since `fork_ns`: what is not `inherited` it has to fault in again itself.
  void keep_inherited(const std::vector<ForkRange>& inherited, std::uint64_t fork_ns);

  // Takes in a walk. What was touched and is still there, sorted by start.
  std::vector<TouchedRange> observe(const WalkView& walk);

  [[nodiscard]] SinceWalk since_walk() const;

  // Sampled faults on pages of [start, end) that were there and that a fork had made shared, within [from_ns, to_ns),
  // by page: each stands for `weight` such faults. They were writes; whether one copied its page or took it over
  // (no other process mapped it any more), the pages tell. Of several on one page the last one. What came between two
  // walks is held until observe() takes in a third.
  [[nodiscard]] std::vector<TouchSample> copy_candidates(std::uint64_t start, std::uint64_t end, std::uint64_t from_ns,
                                                         std::uint64_t to_ns) const;

 private:
  struct KernelPart {
    StackId stack = kEmptyStack;
    std::uint64_t time_ns = 0;
    double faults_per_page = 0;
    std::uint32_t calls = 1;
    double part = -1;           // of its resident bytes were brought in; below 0: no walk has seen it
    bool before_block = false;  // as of a sample
    friend bool operator==(const KernelPart&, const KernelPart&) = default;
  };

  [[nodiscard]] const ResidentRun* run_at_last_walk(std::uint64_t page);
  void leave_originals(const std::vector<ForkRange>& inherited);
  void take_copies(const WalkView& walk);
  void settle_samples(const WalkView& walk, std::vector<TouchedRange>& ranges);
  void settle_kernel(const WalkView& walk, std::vector<TouchedRange>& ranges);

  std::uint64_t page_bytes_;
  TouchSamples samples_;     // first touches
  TouchSamples candidates_;  // faults on pages that were there and shared, or of a file
  IntervalMap<KernelPart> kernel_;
  std::vector<ResidentRun> last_runs_;  // of the last walk
  IntervalMap<bool> gone_;              // of them what was unmapped since
  IntervalMap<std::uint64_t> forked_;   // pages that children inherited since that walk, and when
  std::uint64_t fork_ns_ = 0, last_begin_ns_ = 0;
  std::uint64_t born_ns_ = 0;  // in a fork child whose inherited pages are known; older samples are an ancestor's
  bool used_ = false;          // else there are no samples
};

struct TouchedPages::Part {
  std::uint64_t start = 0, end = 0;
  std::vector<TouchSample> samples;
  IntervalMap<KernelPart> kernel;
};

}  // namespace whyrss
