#include "shim/process/attach.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "shim/events/emit.h"
#include "shim/events/session_state.h"
#include "shim/heap/heap_count.h"
#include "shim/heap/liveness.h"
#include "shim/observe/observe_object.h"
#include "shim/sys/loaded_images.h"
#include "shim/sys/raw_io.h"
#include "shim/sys/real.h"

// First and last byte of this library's image, by the linker.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[];  // NOLINT(readability-identifier-naming)
extern "C" __attribute__((visibility("hidden"))) const char _end[];          // NOLINT(readability-identifier-naming)

namespace whyrss::shim {
namespace {

constexpr std::size_t kPathBytes = 4096;
constexpr std::size_t kCommandBytes = 4096;
constexpr std::int64_t kTickNs = 10'000'000;  // of /proc/self/stat: USER_HZ is 100

struct KnownAllocator {
  std::string_view part;
  trace::Allocator allocator;
};
constexpr KnownAllocator kKnownAllocators[] = {
    {"jemalloc", trace::Allocator::jemalloc}, {"tcmalloc", trace::Allocator::tcmalloc},
    {"mimalloc", trace::Allocator::mimalloc}, {"libc.so", trace::Allocator::glibc},
    {"libc-2.", trace::Allocator::glibc},
};

// `parent_pid`: 0: the kernel knows.
void write_attach_record(ThreadState& thread, trace::Born born, std::uint32_t parent_pid) noexcept {
  constexpr std::size_t kMostBytes = sizeof(trace::AttachRecord) + 2 * kPathBytes + kCommandBytes;
  std::byte* bytes = trace::reserve(thread.writer, thread.lease, kMostBytes);
  if (bytes == nullptr) return;
  auto* tail = reinterpret_cast<char*>(bytes + sizeof(trace::AttachRecord));
  trace::AttachRecord record{};
  record.pid = thread.writer.pid;
  record.parent_pid = parent_pid != 0 ? parent_pid : static_cast<std::uint32_t>(own_syscall(SYS_getppid));
  record.start_ticks = thread.writer.start_ticks;
  record.born = born;
  record.mode = heap().exact ? trace::Mode::exact : trace::Mode::sampled;
  record.sample_bytes = heap().exact ? 0 : heap().sample_bytes;
  record.has_liveness = liveness_address() != 0 ? 1 : 0;
  record.allocator = session().allocator;
  record.page_bytes = 4096;
  record.own_start = reinterpret_cast<std::uintptr_t>(__ehdr_start);
  record.own_end = (reinterpret_cast<std::uintptr_t>(_end) + 4095) & ~std::uintptr_t{4095};
  // A fork child runs what its parent runs: readers know that.
  if (born != trace::Born::fork) {
    const long exe_bytes = own_syscall(SYS_readlink, as_long("/proc/self/exe"), as_long(tail), kPathBytes);
    record.exe_bytes = is_raw_error(exe_bytes) ? 0 : static_cast<std::uint32_t>(exe_bytes);
    tail += record.exe_bytes;
    record.command_bytes =
        static_cast<std::uint32_t>(read_file("/proc/self/cmdline", std::span(tail, kCommandBytes)).size());
    tail += record.command_bytes;
  }
  const std::string_view allocator(session().allocator_path);
  record.allocator_path_bytes = static_cast<std::uint32_t>(std::min(allocator.size(), kPathBytes));
  std::memcpy(tail, allocator.data(), record.allocator_path_bytes);
  tail += record.allocator_path_bytes;
  const auto size_bytes = static_cast<std::size_t>(reinterpret_cast<std::byte*>(tail) - bytes);
  std::memset(tail, 0, trace::padded(size_bytes) - size_bytes);
  record.header = header_of(trace::RecordKind::attach, size_bytes);
  std::memcpy(bytes, &record, sizeof(record));
  trace::publish(thread.lease, size_bytes);
}

// With seed=N the same each time. A forked child still has its parent's; its number makes another one of that.
std::uint64_t process_seed(trace::Born born) noexcept {
  const Session& self = session();
  std::uint64_t seed = born == trace::Born::fork ? self.seed + self.forks.load() : self.settings.seed;
  if (self.settings.seed != 0) return next_random(seed);
  if (own_syscall(SYS_getrandom, as_long(&seed), sizeof(seed), GRND_NONBLOCK) == sizeof(seed)) return seed;
  // Too early after boot: what the kernel gave this image at its start, and when and who it is.
  if (const unsigned long given = getauxval(AT_RANDOM); given != 0)
    std::memcpy(&seed, reinterpret_cast<const void*>(given), sizeof(seed));
  return seed ^ now_ns() ^ static_cast<std::uint64_t>(own_syscall(SYS_getpid)) << 40;
}

// glibc keeps it in the thread's control block, where the first thread finds its own: for threads that may not ask.
std::uint32_t thread_id() noexcept {
  constexpr std::size_t kPlace = 0x2d0;  // x86-64, glibc 2.34 to 2.41
  static constinit bool is_there = false;
  std::uint32_t kept = 0;
  std::memcpy(&kept, static_cast<const char*>(__builtin_thread_pointer()) + kPlace, sizeof kept);
  const long id = own_syscall(SYS_gettid);
  if (is_raw_error(id)) return is_there ? kept : 0;
  is_there = kept == static_cast<std::uint32_t>(id);
  return static_cast<std::uint32_t>(id);
}

// Another one for each thread, also where the kernel gives a thread id again.
std::uint64_t thread_seed(const ThreadState& thread) noexcept {
  static constinit std::atomic<std::uint64_t> started{0};
  const std::uint32_t tid = session().settings.seed != 0 ? 0 : thread.writer.tid;
  std::uint64_t place = session().seed + (started.fetch_add(1, std::memory_order_relaxed) << 32 | tid);
  return next_random(place);
}

}  // namespace

void find_allocator() noexcept {
  const char* name = image_name_at(reinterpret_cast<const void*>(real.malloc)).path;
  if (name == nullptr) return;
  session().allocator_path = name;
  const std::string_view path(name);
  for (const KnownAllocator& known : kKnownAllocators)
    if (path.find(known.part) != std::string_view::npos) {
      session().allocator = known.allocator;
      return;
    }
}

void start_thread(ThreadState& thread, std::uint64_t generation) noexcept {
  thread.writer = session().control->writer;
  thread.writer.tid = thread_id();
  thread.lease = {};  // one that fork copied belongs to the parent
  thread.generation = generation;
  static constinit std::atomic<std::uint32_t> no_walk{0};
  const bool has_slot = thread.writer.slot != trace::kNoSlot;
  thread.walk = has_slot ? &thread.writer.pool.slots[thread.writer.slot].walked_ms : &no_walk;
  std::uint64_t seed = thread_seed(thread);
  start_countdown(thread, next_random(seed));
  thread.read_random = next_random(seed);
  restart_object_countdown(thread);
  if (session().has_thread_key) pthread_setspecific(session().thread_key, &thread);
}

void attach_process(ThreadState& thread, trace::Born born) noexcept {
  Session& self = session();
  // What the thread wrote as is the parent's, which may have ended since: then the kernel names another one. 0: it has
  // written nothing yet. The control page is zero in a fork child.
  const std::uint32_t parent_pid = born == trace::Born::fork ? thread.writer.pid : 0;
  trace::Writer& writer = self.control->writer;
  writer.pool = self.pool;
  writer.pid = static_cast<std::uint32_t>(own_syscall(SYS_getpid));
  writer.start_ticks = process_start_ticks() - static_cast<std::uint64_t>(trace::g_clock.boottime_ahead_ns / kTickNs);
  writer.is_exact = heap().exact;
  writer.slot = trace::claim_slot(writer.pool, writer.pid, writer.start_ticks);
  self.seed = process_seed(born);
  const std::uint64_t generation = ++self.attach_count;  // fork copies the count: a child is never its parent
  start_thread(thread, generation);
  publish_liveness(thread, true);
  write_attach_record(thread, born, parent_pid);
  if (writer.slot == trace::kNoSlot)
    emit_text(thread, trace::RecordKind::note, 0,
              "no place in the pool was free for this process: no last snapshot of it");
  self.control->generation.store(generation, std::memory_order_release);
  permit_reader();
}

void permit_reader() noexcept {
  static constinit bool has_yama = false, asked = false;
  if (!asked) {
    has_yama = !is_raw_error(own_syscall(SYS_access, as_long("/proc/sys/kernel/yama"), 0));
    asked = true;
  }
  const std::uint32_t reader = session().pool.header->reader_pid.load(std::memory_order_relaxed);
  if (has_yama && reader != 0) own_syscall(SYS_prctl, PR_SET_PTRACER, reader);
}

}  // namespace whyrss::shim
