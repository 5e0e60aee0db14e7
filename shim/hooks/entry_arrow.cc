// See arrow_definitions.h. There may be two such libraries: a call goes on to the definition of the very one that it
// comes from.
#include <link.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <span>
#include <string_view>

#include "shim/hooks/arrow_definitions.h"
#include "shim/hooks/entry_allocate.h"
#include "shim/observe/library_blocks.h"
#include "shim/stacks/unwind_rules.h"
#include "shim/sys/symbol_table.h"

extern "C" {
void* arrow_mi_malloc_aligned(std::size_t size, std::size_t alignment) noexcept;
void* arrow_mi_realloc_aligned(void* block, std::size_t size, std::size_t alignment) noexcept;
void arrow_mi_free(void* block) noexcept;
}

namespace whyrss::shim {
namespace {

struct Search {
  const ArrowEntry& entry;
  std::uint64_t caller;  // an address in its code; 0: none
  Definitions definitions{};
  void* of_caller = nullptr;
};

void* definition_in(const SymbolTable& symbols, const ArrowEntry& entry) noexcept {
  void* const found = symbols.find(entry.name).address;
  return found != entry.own ? found : nullptr;
}

int visit_image(dl_phdr_info* image, std::size_t, void* data) noexcept {
  auto& search = *static_cast<Search*>(data);
  void* found = nullptr;
  bool is_caller = false;
  for (const Elf64_Phdr& segment : std::span(image->dlpi_phdr, image->dlpi_phnum)) {
    const std::uint64_t start = image->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && search.caller - start < segment.p_memsz) is_caller = true;
    if (segment.p_type == PT_DYNAMIC)
      found = definition_in({reinterpret_cast<const Elf64_Dyn*>(start), image->dlpi_addr}, search.entry);
  }
  if (found == nullptr) return 0;
  if (is_caller) search.of_caller = found;
  Definitions& all = search.definitions;
  all.several = all.first != nullptr;
  if (!all.several) all.first = found;
  return 0;
}

void* look_up(const ArrowEntry& entry, std::uint64_t address, bool& by_caller) noexcept {
  if (is_image_known_by_libc()) {
    const LoadedImage image = find_image(address);
    if (image.dynamic != nullptr)
      if (void* const found = definition_in({image.dynamic, image.bias}, entry); found != nullptr) return found;
  }
  Search search{.entry = entry, .caller = address};
  dl_iterate_phdr(visit_image, &search);
  if (search.of_caller != nullptr) return search.of_caller;
  by_caller = false;
  return search.definitions.several ? nullptr : search.definitions.first;
}

// What a call of the library goes on to. A call of another library that came in its place returns elsewhere.
struct CallSite {
  std::atomic<std::uint64_t> return_address;  // 0: free, kTaken: being written
  std::atomic<void*> next;
};
constexpr std::uint64_t kTaken = 1;

// Where the library called us by a tail jump the return address is its caller's: then the next function is that of the
// only library that has the name, or it is not known.
template <auto Own>
decltype(Own) next_of(const char* name, const Caller& caller) noexcept {
  static constinit std::array<CallSite, 16> sites{};  // libarrow 26 has at most five of a name
  CallSite* free = nullptr;
  for (CallSite& site : sites) {
    const std::uint64_t address = site.return_address.load(std::memory_order_acquire);
    if (address == caller.ip) return reinterpret_cast<decltype(Own)>(site.next.load(std::memory_order_relaxed));
    if (address == 0) {
      free = &site;
      break;
    }
  }
  bool by_caller = true;
  void* const found = look_up({.name = name, .own = reinterpret_cast<void*>(Own)}, caller.ip - 1, by_caller);
  std::uint64_t expected = 0;
  if (free != nullptr && found != nullptr && by_caller &&
      free->return_address.compare_exchange_strong(expected, kTaken)) {
    free->next.store(found, std::memory_order_relaxed);
    free->return_address.store(caller.ip, std::memory_order_release);
  }
  return reinterpret_cast<decltype(Own)>(found);
}

}  // namespace

ArrowEntry arrow_entry_named(const char* name) noexcept {
  const std::array<ArrowEntry, 3> entries{{
      {"arrow_mi_malloc_aligned", reinterpret_cast<void*>(&::arrow_mi_malloc_aligned)},
      {"arrow_mi_realloc_aligned", reinterpret_cast<void*>(&::arrow_mi_realloc_aligned)},
      {"arrow_mi_free", reinterpret_cast<void*>(&::arrow_mi_free)},
  }};
  if (name == nullptr) return {};
  for (const ArrowEntry& entry : entries)
    if (std::string_view(name) == entry.name) return entry;
  return {};
}

Definitions definitions_of(const ArrowEntry& entry) noexcept {
  Search search{.entry = entry, .caller = 0};
  dl_iterate_phdr(visit_image, &search);
  return search.definitions;
}

}  // namespace whyrss::shim

using namespace whyrss::shim;  // NOLINT(google-build-using-namespace): entries are global C functions

WHYRSS_ENTRY void* arrow_mi_malloc_aligned(std::size_t size, std::size_t alignment) noexcept {
  const Caller caller = caller_here();
  auto* const next = next_of<&arrow_mi_malloc_aligned>("arrow_mi_malloc_aligned", caller);
  if (next == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  void* const block = next(size, alignment);
  observe_library_allocate(caller, reinterpret_cast<const void*>(next), block, size);
  return block;
}

WHYRSS_ENTRY void* arrow_mi_realloc_aligned(void* block, std::size_t size, std::size_t alignment) noexcept {
  const Caller caller = caller_here();
  auto* const next = next_of<&arrow_mi_realloc_aligned>("arrow_mi_realloc_aligned", caller);
  if (next == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  const bool followed = observe_library_release(block);
  void* const moved = next(block, size, alignment);
  if (moved != nullptr)
    observe_library_allocate(caller, reinterpret_cast<const void*>(next), moved, size);
  else if (followed && size != 0)
    observe_library_release_undone(block);
  return moved;
}

WHYRSS_ENTRY void arrow_mi_free(void* block) noexcept {
  const Caller caller = caller_here();
  auto* const next = next_of<&arrow_mi_free>("arrow_mi_free", caller);
  if (next == nullptr) return;
  observe_library_release(block);
  next(block);
}
