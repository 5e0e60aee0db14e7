// Pages given up with MADV_FREE: the kernel takes them when it needs memory, whatever their owner.
#include "attribute/rules.h"

namespace whyrss::rules {

std::optional<Claim> claim_lazy_free(const Evidence&, const Fragment& fragment) {
  if (fragment.lazy == nullptr || !is_private_anonymous(*fragment.vma)) return std::nullopt;
  const OwnedRange* owned = fragment.owned != nullptr ? fragment.owned : fragment.ancestor_owned;
  return Claim{owned != nullptr ? owned->stack : kEmptyStack, fragment.vma->path};
}

}  // namespace whyrss::rules
