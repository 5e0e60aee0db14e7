// Main and thread stacks.
#include "attribute/rules.h"

namespace whyrss::rules {

std::optional<Claim> claim_stack(const Evidence&, const Fragment& fragment) {
  const Vma& vma = *fragment.vma;
  if (vma.path.starts_with("[stack")) return Claim{kEmptyStack, vma.path};
  if (fragment.thread_stack != nullptr && is_private_anonymous(vma))
    return Claim{fragment.thread_stack->stack, vma.path};
  return std::nullopt;
}

}  // namespace whyrss::rules
