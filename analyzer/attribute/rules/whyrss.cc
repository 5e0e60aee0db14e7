// Our own memory: the library's image, its tables, the pool.
#include "attribute/rules.h"

namespace whyrss::rules {
namespace {

bool is_own_bss(const Evidence& evidence, const Fragment& fragment) {
  if (!fragment.vma->path.empty() || fragment.vma_index == 0) return false;
  return is_own_file(evidence, evidence.vmas[fragment.vma_index - 1].path) &&
         image_of_bss(evidence, fragment.vma_index) != nullptr;
}

}  // namespace

bool is_own_file(const Evidence& evidence, std::string_view path) {
  if (!evidence.pool_path.empty() && path.starts_with(evidence.pool_path)) return true;  // maybe " (deleted)"
  if (path.starts_with("/dev/shm/whyrss.") || path.starts_with("/memfd:whyrss")) return true;
  return path.substr(path.rfind('/') + 1).starts_with("libwhyrss.so");
}

std::optional<Claim> claim_whyrss(const Evidence& evidence, const Fragment& fragment) {
  if (fragment.owned_by(Owner::whyrss) || is_own_file(evidence, fragment.vma->path) || is_own_bss(evidence, fragment))
    return Claim{kEmptyStack, fragment.vma->path};
  return std::nullopt;
}

}  // namespace whyrss::rules
