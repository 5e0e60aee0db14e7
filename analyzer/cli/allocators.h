// Which allocators `compare-allocators` runs a command under, and how they are found: the loader itself is asked,
// with the library in LD_PRELOAD of a program of ours (own_allocator.c), which then says whose malloc it got.
#pragma once

#include <string>
#include <vector>

#include "support/result.h"

namespace whyrss {

// One of -a: "jemalloc", "/opt/lib/libx.so", "glibc:MALLOC_ARENA_MAX=1 MALLOC_TOP_PAD_=0".
struct AllocatorChoice {
  std::string name;                   // glibc, jemalloc, tcmalloc, mimalloc, a path or a file name of a library
  std::vector<std::string> settings;  // VARIABLE=VALUE
};

// "glibc,jemalloc,mimalloc:VARIABLE=VALUE OTHER=VALUE": settings go to the end of the text, since their values may
// hold commas. No I/O.
Result<std::vector<AllocatorChoice>> parse_allocators(const std::string& list);

// glibc, jemalloc, tcmalloc, mimalloc.
std::vector<AllocatorChoice> default_allocators();

// Settings that make an allocator give memory back sooner or keep less of it; empty when none is known.
std::vector<std::string> thrifty_settings(const std::string& family);

struct FoundAllocator {
  std::string family;   // glibc, jemalloc, tcmalloc, mimalloc, other
  std::string version;  // "" if it does not say
  std::string library;  // path; "" for glibc
};

// One line says what was looked for when it is not there or serves no malloc.
Result<FoundAllocator> find_allocator(const std::string& name);

}  // namespace whyrss
