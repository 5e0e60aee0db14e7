#include "model/library_allocator.h"

#include <algorithm>
#include <array>

#include "model/thread_starts.h"

namespace whyrss {
namespace {

// A function that maps is inlined into those that call it, or has a name of its own that says nothing.
constexpr int kMostFrames = 8;

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// "deltalake/_internal.abi3.so": many a package calls its library so.
std::string_view in_package(std::string_view path) {
  constexpr std::string_view kFolder = "-packages/";  // of site-packages and dist-packages
  const std::size_t at = path.rfind(kFolder);
  return at == std::string_view::npos ? file_name(path) : path.substr(at + kFolder.size());
}

bool is_c_name(std::string_view function) { return function.find_first_of(":( <") == std::string_view::npos; }

// Of a C function: at its begin, or behind the prefix that a library gives its copy ("duckdb_je_pages_map").
bool has_part(std::string_view function, std::string_view part) {
  const std::size_t at = function.find(part);
  return at == 0 || (at != std::string_view::npos && function[at - 1] == '_');
}

// That map; MyISAM's functions are called mi_ too.
constexpr std::array<std::string_view, 9> kOfMimalloc{"unix_mmap_prim", "_mi_prim_",  "_mi_os_",
                                                      "mi_os_",         "_mi_arena",  "mi_arena",
                                                      "_mi_segment",    "mi_segment", "arrow_mi_"};

constexpr std::array<std::string_view, 2> kNamelessFunctions{"[jemalloc]", "[mimalloc]"};

std::string_view kind_of(std::string_view function) {
  if (is_nameless_function(function)) return function.substr(1, function.size() - 2);
  if (function.find("tcmalloc::") != std::string_view::npos || function.starts_with("TCMalloc_") ||
      function.find("MmapSysAllocator") != std::string_view::npos)
    return "tcmalloc";
  if (function.find("snmalloc::") != std::string_view::npos) return "snmalloc";
  if (function.find("partition_alloc::") != std::string_view::npos) return "PartitionAlloc";
  if (!is_c_name(function)) return "";
  if (has_part(function, "je_") || has_part(function, "rjem_")) return "jemalloc";
  if (std::ranges::any_of(kOfMimalloc, [&](std::string_view begin) { return function.starts_with(begin); }))
    return "mimalloc";
  return has_part(function, "rpmalloc_") ? "rpmalloc" : "";
}

// Where its functions have no names.
std::string_view kind_by_library(std::string_view path) {
  for (const std::string_view kind : {"mimalloc", "jemalloc", "tcmalloc"})
    if (file_name(path).starts_with("lib" + std::string(kind))) return kind;
  return "";
}

struct KnownLibrary {
  std::string_view part;  // of its file's name
  std::string_view allocator;
};
constexpr std::array<KnownLibrary, 4> kKnownLibraries{{
    {"libarrow.so", "Arrow's memory pool"},
    {"polars", "Polars' allocator"},
    {"duckdb", "DuckDB's allocator"},
    {"libpython", "CPython's allocator"},
}};

}  // namespace

std::optional<LibraryAllocator> allocator_that_mapped(const StackTable& stacks, StackId stack) {
  std::optional<ModuleId> library;
  int count = 0;
  for (const FrameId id : stacks[stack]) {
    const Frame& frame = stacks[id];
    if (frame.kind != FrameKind::native || is_thread_frame(frame) || ++count > kMostFrames) break;
    if (library && frame.module != *library) break;
    library = frame.module;
    std::string_view kind = kind_of(frame.function);
    if (kind.empty() && count == 1) kind = kind_by_library(stacks[frame.module].path);
    if (!kind.empty()) return LibraryAllocator{kind, *library};
  }
  return std::nullopt;
}

std::optional<LibraryAllocator> allocator_that_served(const StackTable& stacks, StackId stack) {
  const auto frames = stacks[stack];
  if (frames.empty() || stacks[frames.front()].kind != FrameKind::native) return std::nullopt;
  const Frame& innermost = stacks[frames.front()];
  const std::string_view kind = kind_of(innermost.function);
  return kind.empty() ? std::nullopt : std::optional(LibraryAllocator{kind, innermost.module});
}

std::optional<LibraryAllocator> allocator_of(const StackTable& stacks, Cause cause, StackId stack) {
  if (cause == Cause::heap_unsplit) return allocator_that_mapped(stacks, stack);
  if (cause != Cause::heap_live && cause != Cause::heap_slack && cause != Cause::heap_retained) return std::nullopt;
  return allocator_that_served(stacks, stack);
}

std::string nameless_function(std::string_view kind) {
  const auto known =
      std::ranges::find_if(kNamelessFunctions, [&](std::string_view name) { return name.find(kind) == 1; });
  return known == kNamelessFunctions.end() ? "" : std::string(*known);
}

bool is_nameless_function(std::string_view function) {
  return std::ranges::find(kNamelessFunctions, function) != kNamelessFunctions.end();
}

std::string allocator_name(std::string_view library_path) {
  const std::string_view file = file_name(library_path);
  const auto known = std::ranges::find_if(
      kKnownLibraries, [&](const KnownLibrary& library) { return file.find(library.part) != std::string_view::npos; });
  if (known != kKnownLibraries.end()) return std::string(known->allocator);
  const bool is_library = file.find(".so") != std::string_view::npos;
  if (!is_library && file.starts_with("python")) return "CPython's allocator";
  return (is_library ? "the allocator in " + std::string(in_package(library_path))
                     : "the own allocator of " + std::string(file));
}

}  // namespace whyrss
