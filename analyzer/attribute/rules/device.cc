// Pages of device files that the kernel counts in RSS.
#include "attribute/rules.h"

namespace whyrss::rules {

std::optional<Claim> claim_device(const Evidence&, const Fragment& fragment) {
  if (fragment.vma->backing != Backing::device || is_private_anonymous(*fragment.vma)) return std::nullopt;
  return Claim{mapped_at(fragment), fragment.vma->path};
}

}  // namespace whyrss::rules
