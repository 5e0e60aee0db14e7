// Which memory is an allocator's, also where no hook saw it being mapped (glibc's own mmap calls never pass the PLT).
#pragma once

#include <vector>

#include "attribute/evidence.h"
#include "attribute/ledger.h"

namespace whyrss {

class HeapOwner {
 public:
  // `evidence` must outlive it.
  explicit HeapOwner(const Evidence& evidence);

  // Of fragments of private anonymous memory.
  [[nodiscard]] bool owns(const Fragment& fragment) const;

 private:
  void see_pages(const LivePages& pages);
  void see_small_blocks();

  const Evidence& evidence_;
  std::vector<bool> holds_blocks_;  // per range of Evidence::owned: live small blocks lie in it now
  std::vector<bool> held_blocks_;   // per VMA: outside of what the program mapped, blocks lie or lay in it
};

}  // namespace whyrss
