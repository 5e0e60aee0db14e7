// Memory of the allocators. Which of its bytes are free is not told apart here: all of it counts as live.
#include <algorithm>
#include <cstdint>

#include "attribute/rules.h"

namespace whyrss::rules {
namespace {

// The part of the VMA from its first arena boundary on, if there is one.
bool in_glibc_arena(const Fragment& fragment) {
  const Vma& vma = *fragment.vma;
  const std::uint64_t boundary = (vma.start + kGlibcArenaBytes - 1) / kGlibcArenaBytes * kGlibcArenaBytes;
  return vma.writable && boundary < vma.end && fragment.start >= boundary;
}

bool ever_held_a_block(const Evidence& evidence, const Vma& vma) {
  const auto first = std::ranges::upper_bound(evidence.held_blocks, vma.start, {}, &Range::end);
  return first != evidence.held_blocks.end() && first->start < vma.end;
}

bool is_heap(const Evidence& evidence, const Fragment& fragment) {
  const Vma& vma = *fragment.vma;
  if (fragment.owned != nullptr) return fragment.owned->owner != Owner::program;
  if (vma.path == "[heap]" || fragment.held_block) return true;
  // The allocator mapped it where no hook could see: around its blocks everything is its own.
  return vma.path.empty() && (in_glibc_arena(fragment) || ever_held_a_block(evidence, vma));
}

}  // namespace

std::optional<Claim> claim_heap_live(const Evidence& evidence, const Fragment& fragment) {
  if (!evidence.traced || !is_private_anonymous(*fragment.vma) || !is_heap(evidence, fragment)) return std::nullopt;
  const bool told = fragment.owned_by(Owner::block) || fragment.owned_by(Owner::pymalloc);
  return Claim{told ? fragment.owned->stack : kEmptyStack, fragment.vma->path};
}

}  // namespace whyrss::rules
