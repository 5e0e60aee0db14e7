// Page-cache pages of mapped files.
#include "attribute/rules.h"

namespace whyrss::rules {

std::optional<Claim> claim_file_cache(const Evidence&, const Fragment& fragment) {
  const Vma& vma = *fragment.vma;
  if (vma.backing != Backing::file || (!vma.shared && !fragment.file)) return std::nullopt;
  return Claim{mapped_at(fragment), vma.path};
}

}  // namespace whyrss::rules
