#include "shim/process/session.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "shim/events/emit.h"
#include "shim/events/guard.h"
#include "shim/events/own_memory_events.h"
#include "shim/faults/inherited_pages.h"
#include "shim/faults/touch_event.h"
#include "shim/faults/write_tracking.h"
#include "shim/heap/heap_count.h"
#include "shim/heap/live_blocks.h"
#include "shim/heap/liveness.h"
#include "shim/observe/allocator_stats.h"
#include "shim/observe/exact_events.h"
#include "shim/observe/library_hooks.h"
#include "shim/process/attach.h"
#include "shim/process/collector_start.h"
#include "shim/process/final_walk.h"
#include "shim/process/python_follow.h"
#include "shim/process/restriction.h"
#include "shim/process/teardown.h"
#include "shim/process/trim_at_end.h"
#include "shim/stacks/stack_capture.h"
#include "shim/stacks/stack_scratch.h"
#include "shim/sys/environment.h"
#include "shim/sys/loaded_images.h"
#include "shim/sys/own_memory.h"
#include "shim/sys/real.h"
#include "shim/sys/start_check.h"
#include "shim/sys/vdso.h"

namespace whyrss::shim {

namespace {

void leave_unknown() noexcept { g_session.phase.store(Phase::unknown, std::memory_order_release); }

bool wants_this_program(const Settings& settings) noexcept {
  if (settings.exe_pattern == nullptr) return true;
  char path[PATH_MAX + 1] = {};
  const long size = own_syscall(SYS_readlink, as_long("/proc/self/exe"), as_long(path), PATH_MAX);
  if (size <= 0) return true;
  Text pattern;
  pattern.add(std::string_view(settings.exe_pattern, settings.exe_pattern_bytes));
  const char* slash = std::strrchr(path, '/');
  return fnmatch(pattern.c_str(), path, 0) == 0 || (slash != nullptr && fnmatch(pattern.c_str(), slash + 1, 0) == 0);
}

// The last act of a thread, after the destructors of the program's own keys: re-armed until the last
// of the PTHREAD_DESTRUCTOR_ITERATIONS rounds.
void end_thread(void*) noexcept {
  ThreadState& thread = thread_state();
  if (++thread.exit_rounds < _POSIX_THREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(g_session.thread_key, &thread);
    return;
  }
  const int saved_errno = errno;
  note_thread_end(thread);
  if (Busy busy(thread); busy.taken() && thread.generation != 0 && enter_thread(thread)) {
    if (thread.scratch != nullptr) {
      if (thread.scratch->recall != nullptr) give_back_own_memory(thread, thread.scratch->recall, sizeof(StackRecall));
      give_back_own_memory(thread, thread.scratch, sizeof(StackScratch));
      thread.scratch = nullptr;
    }
    touch_leave_thread(thread);
    trace::seal(thread.lease);
    thread.ended = true;
    thread.fast = false;
    leave_own_pages(thread);
    flush_counts(thread);
  }
  errno = saved_errno;
}

// Maps the pool file and checks it. False: `mistake` says why; empty when the recording is just over.
bool open_session_pool(Text& mistake) noexcept {
  const Settings& settings = g_session.settings;
  const RawFile file(settings.pool_path, O_RDWR);
  if (!file) {
    if (file.number() != -ENOENT) mistake.add("cannot open the pool ").add(settings.pool_path).add(" (tracing is off)");
    return false;
  }
  const long size = own_syscall(SYS_lseek, file.number(), 0, SEEK_END);
  if (size <= 0) {
    mistake.add("not a pool: ").add(settings.pool_path).add(" (tracing is off)");
    return false;
  }
  const long mapping = own_syscall(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (is_raw_error(mapping)) {
    mistake.add("the pool does not fit into the address space (ulimit -v?): ")
        .add(settings.pool_path)
        .add(" (tracing is off)");
    return false;
  }
  own_syscall(SYS_madvise, mapping, size, MADV_DONTDUMP);
  g_session.pool = trace::open_pool(reinterpret_cast<void*>(mapping), static_cast<std::uint64_t>(size));
  if (g_session.pool && g_session.pool.header->session == settings.session) return true;
  own_syscall(SYS_munmap, mapping, size);
  g_session.pool = {};
  mistake.add("not the pool of this session, or of another version: ").add(settings.pool_path).add(" (tracing is off)");
  return false;
}

bool map_control_page() noexcept {
  void* page = map_own(4096);
  if (page == nullptr) return false;
  if (is_raw_error(own_syscall(SYS_madvise, as_long(page), 4096, MADV_WIPEONFORK))) {  // Linux < 4.14
    unmap_own(page, 4096);
    return false;
  }
  g_session.control = static_cast<Control*>(page);
  return true;
}

void report_shared_tables(ThreadState& thread, void* table) noexcept {
  const trace::PoolHeader* header = g_session.pool.header;
  emit(thread, trace::RecordKind::map,
       trace::MapRecord{.header = {},
                        .address = reinterpret_cast<std::uintptr_t>(header),
                        .size_bytes = header->total_bytes,
                        .file_offset = 0,
                        .prot = PROT_READ | PROT_WRITE,
                        .flags = MAP_SHARED,
                        .fd = -1,
                        .origin = trace::MapOrigin::whyrss,
                        .file = trace::MappedFile::none,
                        .stack_id = trace::kNoStack,
                        .tid = thread.writer.tid});
  report_own_memory(thread, g_session.control, 4096);
  if (table != nullptr)
    report_own_memory(thread, table, LiveBlocks::kTableBytes);
  else
    emit_text(thread, trace::RecordKind::note, 0,
              "blocks are not logged: the table of live blocks does not fit into the address space");
  report_liveness(thread);
  if (g_session.settings.liveness_off || liveness_address() != 0) return;
  emit_text(thread, trace::RecordKind::note, 0,
            !heap().learning ? "live bytes are not known: the allocator does not say how large blocks are"
                             : "live bytes are not known: their table does not fit into the address space");
}

// How blocks are followed, before the first is.
void start_heap() noexcept {
  const Settings& settings = g_session.settings;
  heap().sample_bytes = settings.sample_bytes;
  heap().exact = settings.exact;
  heap().sample_objects = settings.sample_objects;
  if (settings.exact) start_ticks();
  heap().learning = allocator_reports_sizes();
  if (heap().learning && !settings.liveness_off) start_liveness();
}

// Attaches with what the environment says. The caller holds Busy and has set Phase::starting.
void attach_by_environment(ThreadState& thread, const char* const* environment, bool in_constructor) noexcept {
  Session& self = g_session;
  Text mistake;
  if (!read_settings(environment, self.settings, mistake)) return switch_off(mistake.view(), {});
  if (self.settings.pool_path == nullptr && self.settings.output == nullptr) return switch_off({}, {});
  if (const std::string_view why = reason_against_start(); !why.empty()) return switch_off(why, {});
  start_clock();
  if (!wants_this_program(self.settings)) return switch_off({}, {});
  if (self.settings.pool_path == nullptr && !in_constructor) return leave_unknown();  // needs the collector first
  if (self.settings.pool_path == nullptr) return switch_off("no session in the environment (tracing is off)", {});
  if (!open_session_pool(mistake)) return switch_off(mistake.view(), {});
  trace::follow_reader(self.pool.header->reader_offsets, self.pool.header->readers_wall);
  if (!map_control_page()) return switch_off("no wipe-on-fork page to be had (tracing is off)", {});
  void* table = map_own(LiveBlocks::kTableBytes);
  live_blocks().use_table(table);
  find_allocator();
  start_heap();
  attach_process(thread, trace::Born::exec);
  report_shared_tables(thread, table);
  self.phase.store(Phase::live, std::memory_order_release);
}

// False: not now (no environment yet, or another thread is at it) or never.
bool start(ThreadState& thread, const char* const* environment, bool in_constructor) noexcept {
  if (environment == nullptr) return false;
  resolve_real();
  Phase expected = Phase::unknown;
  if (!g_session.phase.compare_exchange_strong(expected, Phase::starting)) return expected == Phase::live;
  attach_by_environment(thread, environment, in_constructor);
  return g_session.phase.load(std::memory_order_acquire) == Phase::live;
}

}  // namespace

bool enter_thread(ThreadState& thread) noexcept {
  const Phase phase = g_session.phase.load(std::memory_order_acquire);
  if (phase == Phase::off) {
    stop_counting(thread);
    return false;
  }
  const bool has_begun = __environ != nullptr;  // else libc itself has not
  if (phase != Phase::live && !start(thread, has_begun ? initial_environment() : nullptr, false)) return false;
  const std::uint64_t generation = g_session.control->generation.load(std::memory_order_acquire);
  if (generation == 0) {
    attach_forked_child(thread);
    return g_session.control->generation.load(std::memory_order_acquire) != 0;
  }
  if (thread.generation != generation) {
    start_thread(thread, generation);
    touch_enter_thread(thread);
  }
  return true;
}

void attach_forked_child(ThreadState& thread) noexcept {
  if (g_session.phase.load(std::memory_order_acquire) != Phase::live) return;
  Control& control = *g_session.control;
  if (control.generation.load(std::memory_order_acquire) != 0) return;
  // It would have to ask for its own name.
  if (trace::is_kernel_closed()) return g_session.phase.store(Phase::off, std::memory_order_release);
  if (control.attaching.exchange(1) != 0) return;  // another thread of a raw clone child is at it
  trace::forget_visits();
  thread.ended = false;
  thread.exit_rounds = 0;
  liveness_after_fork_in_child(thread);
  set_allocator_may_be_locked(true);  // until fork() says otherwise
  reset_allocator_stats(thread);
  trace::follow_reader(g_session.pool.header->reader_offsets, g_session.pool.header->readers_wall);
  attach_process(thread, trace::Born::fork);
  library_hooks_after_fork_in_child();
  if (g_session.stacks_ready.load(std::memory_order_acquire)) stacks_after_fork_in_child(thread.writer, thread.lease);
  report_inherited_pages(thread);
  hand_off_uffd(thread);
  touch_enter_fork_child(thread);
  trace::ring_doorbell(g_session.pool);
}

void switch_off(std::string_view what, std::string_view detail) noexcept {
  g_session.phase.store(Phase::off, std::memory_order_release);
  if (!what.empty()) complain(what, detail);
}

namespace {

// glibc allocates the room for a thread's values of later keys when the first of them is set (PTHREAD_KEY_2NDLEVEL_SIZE
// in nptl), with the program's malloc, which may be what calls us. Leases of threads without the key are sealed by the
// reader when the thread has gone.
constexpr pthread_key_t kKeysWithoutAllocation = 32;

// Makes WHYRSS_OUTPUT absolute, starts the collector and puts its session into the environment, so that
// children join. False: tracing is off.
bool start_own_collector(const char* const* environment, const char* output) noexcept {
  static constinit Text absolute, value, mistake;  // once, in the constructor
  if (output[0] != '/') {
    char directory[PATH_MAX] = {};
    if (is_raw_error(own_syscall(SYS_getcwd, as_long(directory), sizeof(directory)))) return false;
    absolute.add(directory).add("/");
  }
  absolute.add(output);
  if (!start_collector(absolute.c_str(), environment, value, mistake)) {
    switch_off(mistake.view(), {});
    set_in_environment("WHYRSS_SESSION", kNoSession);  // the programs that it starts need not say so again
    return false;
  }
  if (set_in_environment("WHYRSS_OUTPUT", absolute.view()) && set_in_environment("WHYRSS_SESSION", value.view()))
    return true;
  switch_off("no memory for the environment (tracing is off)", {});
  return false;
}

void leave_by_exit(int status, void*) noexcept {
  tear_down_process();
  observe_exit(status);
}

}  // namespace

void watch_thread_ends() noexcept {
  pthread_key_t key = 0;
  if (g_session.phase.load(std::memory_order_acquire) == Phase::off || pthread_key_create(&key, end_thread) != 0)
    return;
  g_session.thread_key = key;
  g_session.has_thread_key = key < kKeysWithoutAllocation;
}

void start_session(const char* const* environment) noexcept {
  const int saved_errno = errno;
  ThreadState& thread = thread_state();
  Busy busy(thread);
  if (!busy.taken()) return;
  resolve_real();
  Settings settings;
  static constinit Text ignored;  // attach_by_environment reports it
  const bool understood = read_settings(environment, settings, ignored);
  if (understood && settings.pool_path == nullptr && settings.output != nullptr && wants_this_program(settings) &&
      g_session.phase.load(std::memory_order_acquire) == Phase::unknown && reason_against_start().empty() &&
      !start_own_collector(environment, settings.output)) {
    errno = saved_errno;
    return;
  }
  watch_thread_ends();
  if (start(thread, __environ, true) && enter_thread(thread)) {
    if (g_session.has_thread_key) pthread_setspecific(g_session.thread_key, &thread);
    follow_python();
    stacks_start(g_session.settings.use_libunwind, thread.writer, thread.lease);
    g_session.stacks_ready.store(true, std::memory_order_release);
    start_touch(thread, __environ);
    start_allocator_stats(thread);
    watch_main_thread();
    // on_exit, not a destructor: it gets the status, and registered now it runs after all others.
    on_exit(leave_by_exit, nullptr);
    trace::ring_doorbell(g_session.pool);
  }
  errno = saved_errno;
}

namespace {

__attribute__((constructor)) void load_library(int, char**, char** environment) noexcept { start_session(environment); }

}  // namespace

}  // namespace whyrss::shim
