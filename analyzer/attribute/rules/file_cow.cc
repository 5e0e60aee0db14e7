// Private copies of file pages: present without the file bit in a mapping with a file is the exact test.
#include "attribute/rules.h"

namespace whyrss::rules {

std::optional<Claim> claim_file_cow(const Evidence&, const Fragment& fragment) {
  const Vma& vma = *fragment.vma;
  const bool of_file = vma.backing == Backing::file || vma.backing == Backing::shmem;
  if (!of_file || vma.shared || fragment.file) return std::nullopt;
  return Claim{mapped_at(fragment), vma.path};
}

}  // namespace whyrss::rules
