#include "shim/stacks/image_list.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <span>

#include "shim/sys/loaded_images.h"
#include "shim/sys/readable_page.h"

namespace whyrss::shim {
namespace {

// A torch process has some 300; what comes after these is not known.
constexpr std::size_t kMostEntries = 1024;
constexpr int kPatience = 1 << 12;  // pauses until another thread has extended the list

// One range of an image. Its generation is written last, and read before and after the rest.
struct Entry {
  std::atomic<std::uint64_t> generation, start, end, bias, path, frame_table, dynamic;
};
constinit std::array<Entry, kMostEntries> g_entries{};
constinit std::atomic<std::size_t> g_count{0};
constinit std::atomic<std::uint64_t> g_generation{1};  // + 1 at each dlclose

// Used by the thread that holds g_extending: how far the loader's list has been read.
constinit std::atomic<bool> g_extending{false};
constinit std::uint64_t g_read_generation = 0;
constinit const link_map* g_last = nullptr;

bool take_list() noexcept {
  for (int i = 0; i < kPatience; ++i) {
    if (!g_extending.load(std::memory_order_relaxed) && !g_extending.exchange(true, std::memory_order_acquire))
      return true;
    __builtin_ia32_pause();
  }
  return false;
}

// A dlclose in another thread may free what we read.
template <class Type>
bool is_readable(const Type* object) noexcept {
  const auto first = reinterpret_cast<std::uint64_t>(object);
  const std::uint64_t last = first + sizeof(Type) - 1;
  return is_page_readable(page_of(first)) && (page_of(first) == page_of(last) || is_page_readable(page_of(last)));
}

// The loader maps them with the first segment, which begins at vaddr 0; of a program at a fixed address the kernel says
// where they are.
std::span<const Elf64_Phdr> segments_of(const link_map& image) noexcept {
  if (image.l_addr == 0) return &image == first_image() ? program_segments() : std::span<const Elf64_Phdr>();
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(image.l_addr);
  if (!is_readable(header) || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
  if (header->e_phoff + header->e_phnum * sizeof(Elf64_Phdr) > kPageBytes) return {};
  return {reinterpret_cast<const Elf64_Phdr*>(image.l_addr + header->e_phoff), header->e_phnum};
}

void add_range(const LoadedImage& image, std::uint64_t generation) noexcept {
  const std::size_t index = g_count.load(std::memory_order_relaxed);
  if (index == kMostEntries) return;
  Entry& entry = g_entries[index];
  entry.generation.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.start.store(image.start, std::memory_order_relaxed);
  entry.end.store(image.end, std::memory_order_relaxed);
  entry.bias.store(image.bias, std::memory_order_relaxed);
  entry.path.store(reinterpret_cast<std::uint64_t>(image.path), std::memory_order_relaxed);
  entry.frame_table.store(reinterpret_cast<std::uint64_t>(image.frame_table), std::memory_order_relaxed);
  entry.dynamic.store(reinterpret_cast<std::uint64_t>(image.dynamic), std::memory_order_relaxed);
  entry.generation.store(generation, std::memory_order_release);
  g_count.store(index + 1, std::memory_order_release);
}

void add_image(const link_map& loaded, std::uint64_t generation) noexcept {
  LoadedImage image{.bias = loaded.l_addr, .path = loaded.l_name, .frame_table = nullptr, .dynamic = loaded.l_ld};
  const std::span<const Elf64_Phdr> segments = segments_of(loaded);
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_GNU_EH_FRAME)
      image.frame_table = reinterpret_cast<const std::uint8_t*>(image.bias + segment.p_vaddr);
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD) continue;
    const std::uint64_t start = page_of(image.bias + segment.p_vaddr);
    const std::uint64_t end = image.bias + segment.p_vaddr + segment.p_memsz;
    if (image.start != 0 && start <= page_of(image.end + kPageBytes - 1)) {
      image.end = std::max(image.end, end);
      continue;
    }
    if (image.start != 0) add_range(image, generation);
    image.start = start;
    image.end = end;
  }
  if (image.start != 0) add_range(image, generation);
}

// What came since: the loader appends to its list. False: nothing.
bool extend_list(std::uint64_t generation) noexcept {
  if (g_read_generation != generation) {
    g_read_generation = generation;
    g_last = nullptr;
    g_count.store(0, std::memory_order_relaxed);
  }
  if (g_last != nullptr && !is_readable(g_last)) return false;
  const link_map* next = g_last != nullptr ? g_last->l_next : first_image();
  const bool more = next != nullptr;
  while (next != nullptr && is_readable(next)) {
    add_image(*next, generation);
    g_last = next;
    next = next->l_next;
  }
  return more;
}

LoadedImage find_in_list(std::uint64_t address, std::uint64_t generation) noexcept {
  const std::size_t count = g_count.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    const Entry& entry = g_entries[i];
    if (entry.generation.load(std::memory_order_acquire) != generation) continue;
    const LoadedImage image{
        .start = entry.start.load(std::memory_order_relaxed),
        .end = entry.end.load(std::memory_order_relaxed),
        .bias = entry.bias.load(std::memory_order_relaxed),
        .path = reinterpret_cast<const char*>(entry.path.load(std::memory_order_relaxed)),
        .frame_table = reinterpret_cast<const std::uint8_t*>(entry.frame_table.load(std::memory_order_relaxed)),
        .dynamic = reinterpret_cast<const Elf64_Dyn*>(entry.dynamic.load(std::memory_order_relaxed))};
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool is_whole = entry.generation.load(std::memory_order_relaxed) == generation;
    if (is_whole && address >= image.start && address < image.end) return image;
  }
  return {};
}

}  // namespace

LoadedImage find_listed_image(std::uint64_t address) noexcept {
  const std::uint64_t generation = g_generation.load(std::memory_order_acquire);
  if (const LoadedImage found = find_in_list(address, generation); found.start != 0) return found;
  if (!take_list()) return {};
  const bool extended = extend_list(generation);
  g_extending.store(false, std::memory_order_release);
  return extended ? find_in_list(address, generation) : LoadedImage{};
}

void forget_listed_images() noexcept { g_generation.fetch_add(1, std::memory_order_acq_rel); }

void image_list_after_fork_in_child() noexcept {
  forget_listed_images();
  g_extending.store(false, std::memory_order_relaxed);
}

}  // namespace whyrss::shim
