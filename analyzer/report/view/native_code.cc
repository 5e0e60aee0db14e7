#include "report/view/native_code.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "model/library_allocator.h"

namespace whyrss {
namespace {

using Names = std::initializer_list<std::string_view>;

bool begins_with_one(std::string_view text, Names prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return text.starts_with(prefix); });
}
bool contains_one(std::string_view text, Names parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}
bool ends_with_one(std::string_view text, Names suffixes) {
  return std::ranges::any_of(suffixes, [&](std::string_view suffix) { return text.ends_with(suffix); });
}
bool is_one(std::string_view text, Names names) { return std::ranges::find(names, text) != names.end(); }

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Of a distribution, or of what was installed for all programs; [vdso] too.
bool is_in_system_folder(std::string_view path) {
  if (path.starts_with("/usr/local/")) return is_shared_library(path);
  return begins_with_one(path, {"/usr/lib", "/usr/bin/", "/usr/sbin/", "/usr/games/", "/lib/", "/lib32/", "/lib64/",
                                "/libx32/", "/bin/", "/sbin/", "["});
}

// C++ has its parameters behind the name, Rust has not.
bool has_parameters(std::string_view function) { return function.ends_with(')') || function.ends_with(") const"); }

bool is_of_rust_library(std::string_view function) {
  if (has_parameters(function)) return false;  // a namespace of C++ may be called core
  return begins_with_one(function, {"core::", "alloc::", "hashbrown::", "__rust", "__rdl_", "__rg_",
                                    "<alloc::", "<core::", "<std::", "<hashbrown::", "<T as ", "<&T as ", "<[T] as ",
                                    "<str as ", "<I as ", "<F as "});
}

// Code that a compiler brings along and puts into everybody's programs: the containers and allocators of C++ and Rust,
// often inlined. A user cannot change it, and its lines say nothing about who asked for the memory.
bool is_language_code(const Frame& frame) {
  if (!frame.file.empty())
    return contains_one(frame.file, {"/include/c++/", "/rustc/", "/rustlib/src/", "/rust/deps/"}) ||
           begins_with_one(frame.file, {"library/alloc/src/", "library/core/src/", "library/std/src/", "/usr/include/",
                                        "/usr/local/include/", "/usr/lib/gcc/"});
  const std::string_view function = without_return_type(frame.function);
  return begins_with_one(function, {"std::", "__gnu_cxx::", "__cxxabiv1::", "runtime."}) ||
         is_of_rust_library(function);
}

bool is_packaged_source(std::string_view file) {
  return contains_one(file, {"/.cargo/registry/", "/.cargo/git/", "/pkg/mod/"});
}

bool is_libc_allocator(std::string_view function) {
  return is_one(function,
                {"malloc",    "calloc",         "realloc",  "reallocarray", "free",         "posix_memalign",
                 "memalign",  "aligned_alloc",  "valloc",   "pvalloc",      "mremap_chunk", "malloc_consolidate",
                 "sysmalloc", "sysmalloc_mmap", "new_heap", "grow_heap",    "sbrk",         "__sbrk",
                 "brk",       "__brk",          "mmap",     "mmap64",       "__mmap",       "__mmap64",
                 "mremap",    "madvise",        "xmalloc",  "xcalloc",      "xrealloc",     "xzalloc"}) ||
         begins_with_one(function,
                         {"_int_malloc", "_int_free", "_int_realloc", "_int_memalign", "__libc_malloc", "__libc_calloc",
                          "__libc_realloc", "__libc_memalign", "__libc_free", "arena_get2", "tcache_init"});
}

// Of C++, Rust, jemalloc, mimalloc and tcmalloc, also where they are linked into the program.
bool is_other_allocator(std::string_view function) {
  if (!has_parameters(function) && contains_one(function, {"_je_"})) return true;  // behind a library's own prefix
  if (is_nameless_function(function)) return true;
  if (contains_one(function, {" as core::alloc::global::GlobalAlloc>::"})) return true;
  return begins_with_one(function, {"operator new",
                                    "operator delete",
                                    "std::allocator<",
                                    "__gnu_cxx::new_allocator<",
                                    "__rustc::__rust_",
                                    "__rust_alloc",
                                    "__rust_realloc",
                                    "__rdl_",
                                    "__rg_",
                                    "je_",
                                    "_rjem_",
                                    "_mi_",
                                    "arrow_mi_",
                                    "mi_malloc",
                                    "mi_calloc",
                                    "mi_zalloc",
                                    "mi_realloc",
                                    "mi_new",
                                    "mi_heap_",
                                    "mi_aligned_",
                                    "mi_memalign",
                                    "mi_posix_",
                                    "mi_free",
                                    "mallocx",
                                    "rallocx",
                                    "xallocx",
                                    "tc_malloc",
                                    "tc_calloc",
                                    "tc_realloc",
                                    "tc_new",
                                    "tc_memalign",
                                    "tc_posix_",
                                    "tc_free",
                                    "tcmalloc::"});
}

// Inlined into what calls it, under names that say nothing of it: iralloct().
bool is_allocator_source(std::string_view file) {
  return contains_one(file, {"jemalloc_internal", "jemalloc-sys-", "/jemalloc/src/", "/jemalloc/include/",
                             "libmimalloc-sys-", "/mimalloc/src/", "/mimalloc/include/"});
}

bool is_python_allocator(std::string_view function) {
  return begins_with_one(function, {"_PyObject_Arena", "_PyObject_Malloc", "_PyObject_Calloc", "_PyObject_Realloc",
                                    "PyObject_Malloc", "PyObject_Calloc", "PyObject_Realloc", "_PyObject_GC_", "PyMem_",
                                    "_PyMem_", "pymalloc_", "new_arena", "allocate_from_new_pool"});
}

// What Cython and mypyc put beside each module, for all of its functions: C, where CPyCppyy is C++.
bool is_helper_of_generated_code(std::string_view function) {
  return !has_parameters(function) && begins_with_one(function, {"__Pyx_", "CPy"});
}

// A wrapper of malloc by what programs of C call theirs. Only where no source is known: a program that is being
// debugged may have a function of such a name that keeps what it allocates.
bool is_allocator_wrapper(const Frame& frame, std::string_view function) {
  if (!frame.file.empty() || has_parameters(function)) return false;
  return ends_with_one(function, {"malloc", "calloc", "realloc", "zalloc", "palloc", "memalign", "Malloc", "Calloc",
                                  "Realloc", "MallocZero", "malloc0", "malloc_n", "malloc64", "realloc64",
                                  "slice_alloc", "mem_alloc", "strdup", "strndup", "memdup"}) ||
         begins_with_one(function, {"Perl_safesys", "Perl_more_bodies", "Perl_more_sv", "sqlite3DbMalloc", "TclpAlloc",
                                    "Tcl_Alloc", "Tcl_AttemptAlloc"});
}

// "Pool::allocate" of "demo::Pool<int>::allocate<8>(unsigned long)": class and function, without template arguments and
// parameters.
struct MethodName {
  std::string class_name, name;
};

MethodName method_name(std::string_view function) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (std::size_t at = 0; at < function.size(); ++at) {
    const char letter = function[at];
    if (letter == '(' && depth == 0 && !parts.back().empty()) break;  // not of "(anonymous namespace)"
    if (letter == '<' || letter == '(') ++depth;
    if (depth == 0 && letter == ':')
      (parts.back().empty() ? parts.back() : parts.emplace_back()).clear();
    else if (depth == 0)
      parts.back() += letter;
    if (letter == '>' || letter == ')') --depth;
  }
  return {parts.size() < 2 ? "" : parts[parts.size() - 2], parts.back()};
}

// A method by which a program asks a pool or an arena of its own for memory: who called it is to blame.
bool is_allocating_method(std::string_view function) {
  const MethodName method = method_name(function);
  if (method.class_name.empty()) return false;
  if (is_one(method.name, {"allocate", "do_allocate", "reallocate", "Allocate", "Reallocate"})) return true;
  const auto lower = [](std::string text) {
    for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    return text;
  };
  return contains_one(lower(method.name), {"alloc"}) &&
         ends_with_one(lower(method.class_name), {"allocator", "arena", "pool", "memory_resource", "memoryresource"});
}

}  // namespace

bool is_shared_library(std::string_view module_path) {
  return file_name(module_path).find(".so") != std::string_view::npos;
}

bool serves_others(std::string_view module_path) {
  return begins_with_one(file_name(module_path),
                         {"libc.so", "libc-2", "ld-linux", "ld-2", "libpthread", "libstdc++", "libc++", "libgcc_s",
                          "libdl", "libwhyrss", "libjemalloc", "libtcmalloc", "libmimalloc", "libm.so"});
}

bool is_python_interpreter(std::string_view module_path) {
  const std::string_view name = file_name(module_path);
  if (name.starts_with("libpython") || contains_one(module_path, {"/lib-dynload/"})) return true;
  return name.starts_with("python") && !is_shared_library(module_path);
}

bool starts_program(std::string_view function) {
  return is_one(function, {"_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3",
                           "__clone", "__clone3", "_dl_start", "_dl_start_user"}) ||
         begins_with_one(function, {"__libc_start_main@", "std::rt::lang_start"});
}

bool is_allocator_function(std::string_view function) {
  return is_libc_allocator(function) || is_other_allocator(function) || is_python_allocator(function);
}

std::string_view without_return_type(std::string_view function) {
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t at = 0; at < function.size(); ++at) {
    const char letter = function[at];
    if (depth == 0 && function.substr(at).starts_with("operator") && (at == begin || function[at - 1] == ':')) break;
    if (letter == '<' || letter == '{') ++depth;
    if ((letter == '>' && at > 0 && function[at - 1] != '-') || letter == '}') --depth;
    if (depth != 0) continue;
    if (letter == ' ') begin = at + 1;
    if (letter != '(') continue;
    if (!function.substr(at).starts_with("(anonymous namespace)")) break;
    at += std::string_view("(anonymous namespace)").size() - 1;
  }
  return function.substr(std::min(begin, function.size()));
}

NativeCode native_code(const Frame& frame, const std::string& module_path) {
  if (module_path.empty()) return NativeCode::nowhere;
  const bool is_named = !frame.function.empty();
  const std::string_view function = without_return_type(frame.function);
  if (is_libc_allocator(function) || is_other_allocator(function) || is_allocator_source(frame.file))
    return NativeCode::allocator;
  if (starts_program(function) || is_python_allocator(function) || is_helper_of_generated_code(function) ||
      is_allocator_wrapper(frame, function) || is_allocating_method(function))
    return NativeCode::memory_or_start;
  if (serves_others(module_path) || is_python_interpreter(module_path))
    return is_named ? NativeCode::runtime : NativeCode::unknown;
  if (is_named && is_language_code(frame)) return NativeCode::language;
  const bool says_much = is_named && (frame.function != "main" || !frame.file.empty());
  if (is_in_system_folder(module_path)) {
    if (says_much && !is_shared_library(module_path)) return NativeCode::program;
    return is_named ? NativeCode::library : NativeCode::library_offset;
  }
  if (is_packaged_source(frame.file)) return NativeCode::library;
  return says_much ? NativeCode::program : NativeCode::program_offset;
}

}  // namespace whyrss
