// What a fork child inherited. Which pages it copied since was decided by Inheritance (inheritance.h).
#include "attribute/rules.h"

namespace whyrss::rules {
namespace {

// The ancestor's call, not ours: the child may have freed the block since.
Claim inherited_from(const Fragment& fragment) {
  const OwnedRange* owned = fragment.ancestor_owned;
  const bool reported = owned != nullptr && owned->owner != Owner::allocator;
  return {reported ? owned->stack : kEmptyStack, fragment.vma->path, fragment.in_large_block};
}

}  // namespace

std::optional<Claim> claim_fork_cow(const Evidence&, const Fragment& fragment) {
  if (fragment.fork_class != ForkClass::copied || !is_private_anonymous(*fragment.vma)) return std::nullopt;
  return inherited_from(fragment);
}

std::optional<Claim> claim_fork_shared(const Evidence&, const Fragment& fragment) {
  if (fragment.fork_class == ForkClass::none || !is_private_anonymous(*fragment.vma)) return std::nullopt;
  return inherited_from(fragment);
}

}  // namespace whyrss::rules
