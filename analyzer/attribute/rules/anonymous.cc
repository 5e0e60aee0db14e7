// Mappings that the program made itself, and the zero-filled data (.bss) of its ELF images.
#include "attribute/rules.h"

namespace whyrss::rules {
std::optional<Claim> claim_anonymous(const Evidence& evidence, const Fragment& fragment) {
  if (!is_private_anonymous(*fragment.vma)) return std::nullopt;
  if (fragment.owned_by(Owner::program)) return Claim{fragment.owned->stack, fragment.vma->path};
  if (!fragment.vma->path.empty()) return std::nullopt;
  const Vma* image = image_of_bss(evidence, fragment.vma_index);
  if (image == nullptr) return std::nullopt;
  return Claim{kEmptyStack, image->path};
}

}  // namespace whyrss::rules
