// tmpfs, memfd, SysV, MAP_SHARED anonymous; in a private mapping of one only what was not copied.
#include "attribute/rules.h"

namespace whyrss::rules {

std::optional<Claim> claim_shared_memory(const Evidence&, const Fragment& fragment) {
  const Vma& vma = *fragment.vma;
  const bool shared_anonymous = vma.backing == Backing::anonymous && vma.shared;
  if (!shared_anonymous && (vma.backing != Backing::shmem || (!vma.shared && !fragment.file))) return std::nullopt;
  return Claim{mapped_at(fragment), vma.path};
}

}  // namespace whyrss::rules
