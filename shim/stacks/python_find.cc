// Finds CPython in this process and checks that it is laid out as our tables say, before anything is
// read by them. In the shim's constructor: the program and the libraries it needs are relocated,
// static type objects are in place, the interpreter is not yet initialised. A libpython that comes later, by
// dlopen, is found as the first new stack goes through it.
#include <dlfcn.h>
#include <link.h>

#include "shim/events/emit.h"
#include "shim/stacks/python_frames.h"
#include "shim/stacks/python_interpreter.h"
#include "shim/stacks/python_library.h"
#include "shim/stacks/stack_capture.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {

constinit Interpreter g_python{};
constinit PythonFollowers g_python_followers{};

namespace {

void deallocate_code(void* code) {
  const PythonFollowers& followers = g_python_followers;
  const bool ends_script = followers.is_end_of_script != nullptr && followers.is_end_of_script(code);
  free_code(code, g_python.code_dealloc);
  if (followers.replace_stats_call != nullptr) followers.replace_stats_call();
  if (ends_script) followers.note_end_of_script();
}

// Finalization takes the modules out of sys.modules one by one, before anything that they hold is freed
// (finalize_modules in CPython's pylifecycle.c, PyImport_Cleanup in 3.8).
void deallocate_module(void* module) {
  if (g_python_followers.note_finalization != nullptr) g_python_followers.note_finalization();
  g_python.module_dealloc(module);
}

bool is_python_library(const char* path) noexcept {
  return path != nullptr && __builtin_strstr(path, "libpython3") != nullptr;
}

// A libpython that is not in the global scope (loaded with RTLD_LOCAL).
int keep_python_image(dl_phdr_info* image, std::size_t, void* inside) {
  if (!is_python_library(image->dlpi_name) || image->dlpi_phnum == 0) return 0;
  *static_cast<std::uint64_t*>(inside) = reinterpret_cast<std::uint64_t>(image->dlpi_phdr);
  return 1;
}

Library find_library() noexcept {
  std::uint64_t inside = 0;
  if (find_in_program("_PyRuntime").address == nullptr) dl_iterate_phdr(keep_python_image, &inside);
  return inside != 0 ? Library(find_image(inside)) : Library();
}

void describe_image(const void* inside) noexcept {
  const LoadedImage image = find_image(reinterpret_cast<std::uint64_t>(inside));
  g_python.record.runtime_start = image.start;
  g_python.record.runtime_end = image.end;
}

void find_eval_range(const Library& library) noexcept {
  const Symbol eval = library.symbol("_PyEval_EvalFrameDefault");
  if (eval.size_bytes == 0) return;
  g_python.record.eval_start = reinterpret_cast<std::uint64_t>(eval.address);
  g_python.record.eval_end = g_python.record.eval_start + eval.size_bytes;
}

bool find_functions(const Library& library, const PythonLayout& layout) noexcept {
  library.find("PyInterpreterState_Main", g_python.main_interpreter);
  library.find("PyInterpreterState_Head", g_python.first_interpreter);
  library.find("PyInterpreterState_Next", g_python.next_interpreter);
  library.find("PyInterpreterState_ThreadHead", g_python.first_thread);
  library.find("PyThreadState_Next", g_python.next_thread);
  g_python.code_type = library.address("PyCode_Type");
  g_python.unicode_type = library.address("PyUnicode_Type");
  g_python.bytes_type = library.address("PyBytes_Type");
  const bool asks_holder = layout.family < FrameFamily::cframe_boundary;
  const bool finds_holder = library.find(
      layout.minor >= 13 ? "PyThreadState_GetUnchecked" : "_PyThreadState_UncheckedGet", g_python.attached_state);
  return library.find("PyGILState_GetThisThreadState", g_python.this_thread_state) && (!asks_holder || finds_holder) &&
         library.find(layout.minor >= 13 ? "Py_IsFinalizing" : "_Py_IsFinalizing", g_python.is_finalizing) &&
         g_python.bytes_type != nullptr;
}

void find_collector(const PythonLayout& layout) noexcept {
  g_python.collecting = layout.collecting;
  if (layout.says_collecting != 0)
    g_python.collecting = load_at<std::uint64_t>(g_python.runtime, layout.says_collector) +
                          load_at<std::uint64_t>(g_python.runtime, layout.says_collecting);
}

// Puts `wrapper` before the deallocator of a static type object, which is kept in `real`.
void wrap_dealloc(std::byte* type, Deallocator& real, Deallocator wrapper) noexcept {
  real = load_at<Deallocator>(type, g_python.layout->type_dealloc);
  __atomic_store_n(reinterpret_cast<Deallocator*>(type + g_python.layout->type_dealloc), wrapper, __ATOMIC_RELEASE);
}

// Its allocators' lock exists once the interpreter does, and others may hold it then.
void wrap_memory(const Library& library, const PythonLayout& layout, bool is_late) noexcept {
  if (g_python_followers.wrap_memory == nullptr) return;
  int (*is_initialized)() = nullptr;
  if (library.find("Py_IsInitialized", is_initialized) && is_initialized() == 0)
    g_python_followers.wrap_memory(library, layout, is_late);
  else
    emit_text(thread_state(), trace::RecordKind::note, 0,
              "python: it ran before it was found, how full its arenas are is not known");
}

// What this process has of Python; false: nothing. `is_late`: its first event is being observed.
bool examine(const Library& library, bool is_late, trace::PythonSupport& support) noexcept {
  const std::byte* runtime = library.address("_PyRuntime");  // since 3.7
  if (runtime == nullptr) {
    if (const std::byte* pypy = library.address("PyPy_IsInitialized"); pypy != nullptr) {
      support = trace::PythonSupport::not_cpython;
      describe_image(pypy);
      return true;
    }
    const std::byte* old = library.address("Py_GetVersion");
    if (old == nullptr || !find_python_version(library)) return false;
    support = trace::PythonSupport::unknown_version;
    describe_image(old);
    return true;
  }
  // By a function, whose frames are looked for: _PyRuntime may lie in a segment apart.
  const std::byte* code = library.address("Py_GetVersion");
  describe_image(code != nullptr ? code : runtime);
  find_eval_range(library);
  support = trace::PythonSupport::unknown_version;
  if (!find_python_version(library)) return true;
  g_python.row = find_python_row(library);
  if (g_python.row == kPythonLayouts.size()) return true;
  const PythonLayout& layout = kPythonLayouts[g_python.row];
  g_python.layout = &layout;
  support = trace::PythonSupport::mismatch;
  if (!is_laid_out_as(library, layout) || !find_functions(library, layout)) return true;
  support = trace::PythonSupport::full;
  g_python.runtime = runtime;
  find_collector(layout);
  wrap_memory(library, layout, is_late);
  if (std::byte* module_type = library.address("PyModule_Type"); module_type != nullptr)
    wrap_dealloc(module_type, g_python.module_dealloc, deallocate_module);
  return true;
}

// What every report says of an interpreter that is not known well.
void say_support() noexcept {
  const char* what = "";
  switch (g_python.record.support) {
    case trace::PythonSupport::full:
      if (!g_python.layout->free_threaded) return;
      what = " is free-threaded: experimental, no test has run its tables; how full its heap is is not known";
      break;
    case trace::PythonSupport::unknown_version:
      what = " is not known to this version of whyrss: native frames only";
      break;
    case trace::PythonSupport::mismatch:
      what = " is not laid out as its releases are (a debug build?): native frames only";
      break;
    case trace::PythonSupport::not_cpython:
      what = "this interpreter is not CPython: native frames only";
      break;
  }
  ShortText text;
  text.add("python: ").add({g_python.version, g_python.record.version_bytes}).add(what);
  emit_text(thread_state(), trace::RecordKind::note, 0, text.view());
}

void start(const Library& library, bool is_late, const trace::Writer& writer, trace::Lease& lease) noexcept {
  if (!examine(library, is_late, g_python.record.support)) return;
  if (g_python.record.support == trace::PythonSupport::full) {
    if (map_code_table()) {
      wrap_dealloc(g_python.code_type, g_python.code_dealloc, deallocate_code);
      g_python.usable.store(true, std::memory_order_release);
      outdate_stacks();
    } else {
      emit_text(thread_state(), trace::RecordKind::note, 0, "python: no frames, no memory for the code table");
    }
  }
  emit_python_record(writer, lease);
  say_support();
}

// Where a libpython begins that came after the constructor, 0: none did, or it has been checked.
constinit std::atomic<std::uint64_t> g_late_image{0};
constinit std::atomic<bool> g_found_late{false};

}  // namespace

void python_start(const trace::Writer& writer, trace::Lease& lease) noexcept {
  if (g_python.layout == nullptr) start(find_library(), false, writer, lease);
}

void python_may_be_in(const LoadedImage& image) noexcept {
  if (g_python.record.runtime_start == 0 && is_python_library(image.path)) {
    g_late_image.store(image.start, std::memory_order_release);
    outdate_stacks();
  }
}

bool may_have_python() noexcept {
  return g_python.usable.load(std::memory_order_relaxed) || g_late_image.load(std::memory_order_relaxed) != 0;
}

bool is_python_known() noexcept {
  return g_python.usable.load(std::memory_order_relaxed) && g_late_image.load(std::memory_order_relaxed) == 0;
}

void python_start_late(const trace::Writer& writer, trace::Lease& lease) noexcept {
  if (g_late_image.load(std::memory_order_relaxed) == 0) return;
  const std::uint64_t start_address = g_late_image.exchange(0, std::memory_order_acq_rel);
  if (start_address == 0 || g_python.record.runtime_start != 0) return;
  const LoadedImage image = find_image(start_address);
  if (image.start == start_address && is_python_library(image.path)) {
    g_found_late.store(true);
    start(Library(image), true, writer, lease);
  }
}

void python_before_dlclose() noexcept {
  if (!g_found_late.exchange(false)) return;
  const LoadedImage image = find_image(g_python.record.runtime_start);
  if (image.path != nullptr) dlopen(image.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void emit_python_record(const trace::Writer& writer, trace::Lease& lease) noexcept {
  trace::PythonRecord record = g_python.record;
  const std::size_t size_bytes = trace::padded(sizeof(record) + record.version_bytes);
  std::byte* bytes = trace::reserve(writer, lease, size_bytes);
  if (bytes == nullptr) return;
  record.header = header_of(trace::RecordKind::python, size_bytes);
  __builtin_memset(bytes + size_bytes - 8, 0, 8);
  __builtin_memcpy(bytes, &record, sizeof(record));
  __builtin_memcpy(bytes + sizeof(record), g_python.version, record.version_bytes);
  trace::publish(lease, size_bytes);
}

void python_switch_off(const char* reason) noexcept {
  if (!g_python.usable.exchange(false)) return;
  ShortText text;
  text.add("python: frames switched off, ").add(reason);
  emit_text(thread_state(), trace::RecordKind::note, 0, text.view());
}

EvalRange python_eval_range() noexcept {
  return {.start = g_python.record.eval_start, .end = g_python.record.eval_end};
}

}  // namespace whyrss::shim
