// One function per cause: does it claim this fragment, and for whom? Called in the order of Cause, on
// what earlier rules left. The heap's causes share pages; heap.h separates them.
#pragma once

#include <optional>
#include <string_view>

#include "attribute/evidence.h"
#include "attribute/ledger.h"

namespace whyrss::rules {

// The library, or the pool of events.
bool is_own_file(const Evidence& evidence, std::string_view path);

std::optional<Claim> claim_whyrss(const Evidence& evidence, const Fragment& fragment);
std::optional<Claim> claim_device(const Evidence& evidence, const Fragment& fragment);
std::optional<Claim> claim_shared_memory(const Evidence& evidence, const Fragment& fragment);
std::optional<Claim> claim_file_cache(const Evidence& evidence, const Fragment& fragment);
std::optional<Claim> claim_file_cow(const Evidence& evidence, const Fragment& fragment);
std::optional<Claim> claim_lazy_free(const Evidence& evidence, const Fragment& fragment);
std::optional<Claim> claim_fork_cow(const Evidence& evidence, const Fragment& fragment);
std::optional<Claim> claim_fork_shared(const Evidence& evidence, const Fragment& fragment);
std::optional<Claim> claim_stack(const Evidence& evidence, const Fragment& fragment);
std::optional<Claim> claim_anonymous(const Evidence& evidence, const Fragment& fragment);

// The mapping of the file whose .bss this nameless one is, or nullptr: the kernel and ld.so map it right
// behind the image's writable segment.
const Vma* image_of_bss(const Evidence& evidence, std::size_t vma_index);

// The call that mapped these addresses, if the program made it itself.
inline StackId mapped_at(const Fragment& fragment) {
  return fragment.owned_by(Owner::program) ? fragment.owned->stack : kEmptyStack;
}

}  // namespace whyrss::rules
