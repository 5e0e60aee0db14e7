// Which image holds an address, where libc does not say so (_dl_find_object, glibc 2.35): a list of our own, made from
// the loader's. It takes no lock: dl_iterate_phdr() would take one that a fork of those days left locked in the child.
// Async-signal-safe; a thread that asks while another one extends the list waits a little, and then knows nothing.
#pragma once

#include <elf.h>

#include <cstdint>

namespace whyrss::shim {

// An ELF image of this process as the loader knows it; start 0: none holds this address. Where segments do not lie side
// by side (lld and mold leave holes between them) the range is that of one segment.
struct LoadedImage {
  std::uint64_t start = 0, end = 0;           // mapped range
  std::uint64_t bias = 0;                     // address - ELF vaddr
  const char* path = nullptr;                 // as the loader has it: "" for the main program
  const std::uint8_t* frame_table = nullptr;  // .eh_frame_hdr
  const Elf64_Dyn* dynamic = nullptr;         // its dynamic section
};

LoadedImage find_listed_image(std::uint64_t address) noexcept;

// After a dlclose: what the list holds may be gone.
void forget_listed_images() noexcept;
// Another thread may have been extending the list.
void image_list_after_fork_in_child() noexcept;

}  // namespace whyrss::shim
