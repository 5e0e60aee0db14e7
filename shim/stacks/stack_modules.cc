#include "shim/stacks/stack_modules.h"

#include <elf.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cstring>
#include <span>

#include "shim/events/emit.h"
#include "shim/stacks/python_frames.h"
#include "shim/stacks/unwind_rules.h"
#include "shim/sys/loaded_images.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/readable_page.h"

namespace whyrss::shim {
namespace {

// A torch process maps some 300 images; beyond this many they are described again at each new stack.
constexpr std::size_t kMaxKnown = 1024;
constexpr std::size_t kMaxPathBytes = 4095;
constexpr std::size_t kMaxBuildIdBytes = 32;  // 20 for SHA-1, the usual

struct KnownImage {
  std::atomic<std::uint64_t> start, end;
};
constinit std::array<KnownImage, kMaxKnown> g_known{};
constinit std::atomic<std::size_t> g_known_count{0};
constinit char g_program_path[kMaxPathBytes + 1]{};

constinit std::atomic<std::size_t> g_known_last{0};  // the one that was asked for last: neighbours of a stack share it

bool holds(const KnownImage& image, std::uint64_t address) noexcept {
  return address >= image.start.load(std::memory_order_relaxed) && address < image.end.load(std::memory_order_acquire);
}

bool is_known(std::uint64_t address) noexcept {
  if (holds(g_known[g_known_last.load(std::memory_order_relaxed)], address)) return true;
  const std::size_t count = std::min(g_known_count.load(std::memory_order_acquire), kMaxKnown);
  for (std::size_t i = 0; i < count; ++i) {
    if (!holds(g_known[i], address)) continue;
    g_known_last.store(i, std::memory_order_relaxed);
    return true;
  }
  return false;
}

void remember(const LoadedImage& image) noexcept {
  const std::size_t index = g_known_count.fetch_add(1, std::memory_order_acq_rel);
  if (index >= kMaxKnown) {
    g_known_count.store(kMaxKnown, std::memory_order_release);
    return;
  }
  g_known[index].start.store(image.start, std::memory_order_relaxed);
  g_known[index].end.store(image.end, std::memory_order_release);
}

// The program headers of a mapped image. The loader maps them with the first segment, which begins at vaddr 0, or where
// the image does. Of a program at a fixed address with holes the kernel says where they are (not where the program was
// started by running the loader, whose own it names then).
std::span<const Elf64_Phdr> segments_of(const LoadedImage& image) noexcept {
  for (const std::uint64_t start : {image.start, image.bias}) {
    if (start == 0 || !is_page_readable(page_of(start))) continue;
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(start);
    if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) continue;
    if (header->e_phoff + header->e_phnum * sizeof(Elf64_Phdr) > kPageBytes) return {};
    return {reinterpret_cast<const Elf64_Phdr*>(start + header->e_phoff), header->e_phnum};
  }
  return image.bias == 0 ? program_segments() : std::span<const Elf64_Phdr>();
}

// Whether the loader maps a segment, which need not be loaded itself, with one that is.
bool is_mapped(const Elf64_Phdr& inner, std::span<const Elf64_Phdr> segments) noexcept {
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_LOAD && inner.p_vaddr - segment.p_vaddr <= segment.p_filesz &&
        inner.p_memsz <= segment.p_filesz - (inner.p_vaddr - segment.p_vaddr))
      return true;
  return false;
}

// The GNU build id note of a mapped image; empty when it has none.
std::span<const std::uint8_t> build_id(const LoadedImage& image) noexcept {
  const std::span<const Elf64_Phdr> segments = segments_of(image);
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_NOTE || !is_mapped(segment, segments)) continue;
    std::uint64_t at = image.bias + segment.p_vaddr;
    const std::uint64_t end = at + segment.p_memsz;
    while (at + sizeof(Elf64_Nhdr) <= end) {
      const auto* note = reinterpret_cast<const Elf64_Nhdr*>(at);
      const std::uint64_t name = at + sizeof(Elf64_Nhdr);
      const std::uint64_t content = name + ((note->n_namesz + 3ULL) & ~3ULL);
      const std::uint64_t next = content + ((note->n_descsz + 3ULL) & ~3ULL);
      if (next > end) break;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
          std::memcmp(reinterpret_cast<const void*>(name), "GNU", 4) == 0 && note->n_descsz <= kMaxBuildIdBytes)
        return {reinterpret_cast<const std::uint8_t*>(content), note->n_descsz};
      at = next;
    }
  }
  return {};
}

}  // namespace

void start_modules() noexcept {
  const long length =
      own_syscall(SYS_readlink, as_long("/proc/self/exe"), as_long(g_program_path), static_cast<long>(kMaxPathBytes));
  g_program_path[is_raw_error(length) ? 0 : length] = 0;
}

void describe_module(std::uint64_t address, const trace::Writer& writer, trace::Lease& lease) noexcept {
  if (is_known(address)) return;
  const LoadedImage image = find_image(address);
  if (image.start == 0) return;
  std::string_view path = image.path == nullptr ? "" : image.path;
  if (path.empty()) path = g_program_path;
  path = path.substr(0, kMaxPathBytes);
  const std::span<const std::uint8_t> id = build_id(image);
  // From LD_LIBRARY_PATH=. and the like; the vDSO's name has no slash.
  const bool is_relative = !path.starts_with('/') && path.find('/') != std::string_view::npos;
  const std::size_t most_bytes =
      sizeof(trace::ModuleRecord) + id.size() + (is_relative ? kMaxPathBytes + 1 : 0) + path.size();
  std::byte* bytes = trace::reserve(writer, lease, trace::padded(most_bytes));
  if (bytes == nullptr) return;
  auto* text = reinterpret_cast<char*>(bytes + sizeof(trace::ModuleRecord) + id.size());
  std::size_t text_bytes = 0;
  if (is_relative) {
    const long length = own_syscall(SYS_getcwd, as_long(text), kMaxPathBytes);  // with its NUL
    if (length > 1 && text[0] == '/') {
      text_bytes = static_cast<std::size_t>(length);
      text[text_bytes - 1] = '/';
      while (path.starts_with("./")) path.remove_prefix(2);
    }
  }
  if (!path.empty()) std::memcpy(text + text_bytes, path.data(), path.size());
  text_bytes += path.size();
  const std::size_t used_bytes = sizeof(trace::ModuleRecord) + id.size() + text_bytes;
  const std::size_t size_bytes = trace::padded(used_bytes);
  std::memset(bytes + used_bytes, 0, size_bytes - used_bytes);
  const trace::ModuleRecord record{.header = header_of(trace::RecordKind::module, size_bytes),
                                   .start = image.start,
                                   .end = image.end,
                                   .bias = image.bias,
                                   .build_id_bytes = static_cast<std::uint32_t>(id.size()),
                                   .path_bytes = static_cast<std::uint32_t>(text_bytes)};
  std::memcpy(bytes, &record, sizeof record);
  if (!id.empty()) std::memcpy(bytes + sizeof record, id.data(), id.size());
  trace::publish(lease, size_bytes);
  remember(image);
  python_may_be_in(image);
}

void forget_modules() noexcept {
  for (KnownImage& image : g_known) image.end.store(0, std::memory_order_relaxed);
  g_known_count.store(0, std::memory_order_release);
}

}  // namespace whyrss::shim
