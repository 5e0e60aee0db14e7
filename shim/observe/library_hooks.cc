#include "shim/observe/library_hooks.h"

#include <elf.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>

#include "shim/events/emit.h"
#include "shim/heap/heap_settings.h"
#include "shim/observe/allocator_stats.h"
#include "shim/observe/library_blocks.h"
#include "shim/stacks/unwind_rules.h"
#include "shim/sys/file_symbols.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/real.h"

namespace whyrss::shim {
namespace {

using Mallctl = int(const char* name, void* old_value, std::size_t* old_size, void* new_value, std::size_t new_size);

enum class State : std::uint8_t { other, waiting, installed };

struct Library {
  std::atomic<std::uint64_t> start{0};  // of the image; 0: free
  Mallctl* mallctl = nullptr;
  std::atomic<State> state{State::other};
};
constinit std::array<Library, 64> g_libraries{};
constinit std::atomic<int> g_waiting{0};
constinit std::atomic<bool> g_is_full{false};
constinit std::atomic<bool> g_serving{false};  // one thread at a time; it owns g_text
constinit Text g_text;

// hook_alloc_t and the arguments of each. What was asked for: how it is rounded up is another matter in each version,
// and a block that is taken for longer than it is covers the next one.
std::size_t requested(int type, const std::uintptr_t* arguments) noexcept {
  switch (type) {
    case 0:  // malloc(size)
    case 5:  // valloc(size)
    case 6:  // mallocx(size, flags)
      return arguments[0];
    case 2:  // aligned_alloc(alignment, size)
    case 4:  // memalign(alignment, size)
    case 7:  // realloc(block, size)
    case 8:  // rallocx(block, size, flags)
      return arguments[1];
    case 1:  // posix_memalign(result, alignment, size)
      return arguments[2];
    case 3: {  // calloc(count, size)
      std::size_t total = 0;
      return __builtin_mul_overflow(arguments[0], arguments[1], &total) ? 0 : total;
    }
    default:
      return 0;
  }
}

void on_allocate(void*, int type, void* block, std::uintptr_t, std::uintptr_t* arguments) noexcept {
  observe_library_allocate(caller_here(), nullptr, block, requested(type, arguments));
}

void on_release(void*, int, void* block, std::uintptr_t*) noexcept { observe_library_release(block); }

// In place.
void on_resize(void*, int, void* block, std::size_t old_bytes, std::size_t new_bytes, std::uintptr_t,
               std::uintptr_t*) noexcept {
  if (old_bytes == new_bytes) return;
  observe_library_release(block);
  observe_library_allocate(caller_here(), nullptr, block, new_bytes);
}

struct Hooks {
  decltype(&on_allocate) allocate;
  decltype(&on_release) release;
  decltype(&on_resize) resize;
  void* extra;
};

std::span<const Elf64_Phdr> segments_of(const LoadedImage& image) noexcept {
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(image.start);
  if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
  return {reinterpret_cast<const Elf64_Phdr*>(image.start + header->e_phoff), header->e_phnum};
}

std::span<const std::byte> build_id_of(const LoadedImage& image) noexcept {
  for (const Elf64_Phdr& segment : segments_of(image)) {
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const std::byte*>(image.bias + segment.p_vaddr);
    const auto* const end = at + segment.p_memsz;
    while (at + sizeof(Elf64_Nhdr) <= end) {
      Elf64_Nhdr note{};
      std::memcpy(&note, at, sizeof(note));
      const std::size_t name_bytes = (note.n_namesz + 3U) & ~3U, text_bytes = (note.n_descsz + 3U) & ~3U;
      const auto* const name = at + sizeof(note);
      at = name + name_bytes + text_bytes;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0 && at <= end)
        return {name + name_bytes, note.n_descsz};
    }
  }
  return {};
}

bool is_code(const LoadedImage& image, std::uint64_t address) noexcept {
  return std::ranges::any_of(segments_of(image), [&](const Elf64_Phdr& segment) {
    return segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 &&
           address - image.bias - segment.p_vaddr < segment.p_memsz;
  });
}

const char* path_of(const LoadedImage& image) noexcept { return *image.path == '\0' ? "/proc/self/exe" : image.path; }

Mallctl* find_mallctl(const LoadedImage& image) noexcept {
  constexpr std::size_t kBufferBytes = 64 * 1024;
  const long buffer =
      own_syscall(SYS_mmap, 0, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (is_raw_error(buffer)) return nullptr;
  // Both, since another library may have a mallctl of another meaning.
  const std::uint64_t offset = find_in_file(path_of(image), build_id_of(image), "mallctl", "mallctlnametomib",
                                            {reinterpret_cast<char*>(buffer), kBufferBytes});
  own_syscall(SYS_munmap, buffer, kBufferBytes);
  const std::uint64_t address = image.bias + offset;
  return offset != 0 && is_code(image, address) ? reinterpret_cast<Mallctl*>(address) : nullptr;
}

// What serves malloc has hooks of ours already, under its names.
bool serves_malloc(const LoadedImage& image) noexcept {
  return find_image(reinterpret_cast<std::uint64_t>(real.malloc)).start == image.start;
}

// Why not; nullptr: it calls us from now on.
const char* install_hooks(Mallctl* mallctl, const char*& version) noexcept {
  std::size_t size = sizeof(version);
  if (mallctl("version", &version, &size, nullptr, 0) != 0 || version == nullptr) return "its mallctl() has no version";
  Hooks hooks{on_allocate, on_release, on_resize, nullptr};
  void* handle = nullptr;
  size = sizeof(handle);
  switch (mallctl("experimental.hooks.install", &handle, &size, &hooks, sizeof(hooks))) {
    case 0:
      return nullptr;
    case ENOENT:
      return "it is older than 5.2 and has no hooks";
    case EAGAIN:
      return "all of its hooks are taken";
    default:
      return "its mallctl() installed no hook";
  }
}

// The allocator may map memory meanwhile: that is the program's, and is seen.
void serve(ThreadState& thread, Library& library, const LoadedImage& image) noexcept {
  const int saved_errno = errno;
  const std::uintptr_t busy_sp = thread.busy_sp;
  thread.busy_sp = 0;
  const char* version = nullptr;
  const char* const why_not = install_hooks(library.mallctl, version);
  thread.busy_sp = busy_sp;
  errno = saved_errno;
  library.state.store(why_not == nullptr ? State::installed : State::other, std::memory_order_release);
  if (why_not == nullptr) return;
  g_text.clear();
  g_text.add("blocks of jemalloc ").add(version != nullptr ? version : "").add(" in ").add(path_of(image));
  emit_note(thread, g_text.add(" are not followed: ").add(why_not).view());
}

void stop_waiting(Library& library) noexcept {
  State state = State::waiting;
  if (library.state.compare_exchange_strong(state, State::other)) g_waiting.fetch_sub(1, std::memory_order_relaxed);
}

bool is_loaded(const Library& library) noexcept {
  const std::uint64_t start = library.start.load(std::memory_order_relaxed);
  return find_image(start).start == start;
}

}  // namespace

void note_mapper(ThreadState& thread, const Caller& caller) noexcept {
  if (trace::is_kernel_closed()) return;
  const LoadedImage image = find_image(caller.ip - 1);
  if (image.start == 0) return;
  for (Library& library : g_libraries) {
    std::uint64_t start = library.start.load(std::memory_order_acquire);
    if (start == image.start) return;
    if (start != 0 || !library.start.compare_exchange_strong(start, image.start)) {
      if (start == image.start) return;
      continue;
    }
    library.mallctl = serves_malloc(image) ? nullptr : find_mallctl(image);
    if (library.mallctl == nullptr) return;
    library.state.store(State::waiting, std::memory_order_release);
    g_waiting.fetch_add(1, std::memory_order_release);
    return;
  }
  if (!g_is_full.exchange(true))
    emit_note(thread, "more than 64 libraries map memory: allocators in the others are not followed");
}

void serve_library_hooks(ThreadState& thread) noexcept {
  if (g_waiting.load(std::memory_order_acquire) == 0 || trace::is_kernel_closed()) return;
  if (g_serving.exchange(true, std::memory_order_acquire)) return;
  for (Library& library : g_libraries) {
    if (library.state.load(std::memory_order_acquire) != State::waiting) continue;
    const LoadedImage image = find_image(library.start.load(std::memory_order_relaxed));
    if (danger_of_call(thread, caller_here(), image.start, image.end) != nullptr) break;
    stop_waiting(library);
    if (is_loaded(library)) serve(thread, library, image);
  }
  g_serving.store(false, std::memory_order_release);
}

void library_hooks_after_dlclose() noexcept {
  for (Library& library : g_libraries) {
    if (library.start.load(std::memory_order_relaxed) == 0 || is_loaded(library)) continue;
    stop_waiting(library);
    library.state.store(State::other, std::memory_order_relaxed);
    library.start.store(0, std::memory_order_release);
  }
}

void library_hooks_after_fork_in_child() noexcept { g_serving.store(false, std::memory_order_relaxed); }

}  // namespace whyrss::shim
