// Zero-filled data of ELF images, as seen in the list of mappings.
#include <algorithm>

#include "attribute/rules.h"

namespace whyrss::rules {
namespace {

constexpr std::size_t kMostSegments = 16;  // mappings of one ELF image

}  // namespace

const Vma* image_of_bss(const Evidence& evidence, std::size_t vma_index) {
  if (vma_index == 0) return nullptr;
  const Vma& data = evidence.vmas[vma_index - 1];
  const Vma& bss = evidence.vmas[vma_index];
  if (data.end != bss.start || data.backing != Backing::file || data.shared || !data.writable) return nullptr;
  for (std::size_t i = 1; i <= std::min(kMostSegments, vma_index); ++i) {
    const Vma& segment = evidence.vmas[vma_index - i];
    if (segment.path != data.path) return nullptr;
    if (segment.executable) return &data;
  }
  return nullptr;
}

}  // namespace whyrss::rules
