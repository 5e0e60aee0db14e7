// Allocators that a library, or the program itself, brings along beside the one that serves malloc: Arrow's, Polars'
// and DuckDB's among them. They are known by the functions that map their memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/cause.h"
#include "model/stack_table.h"

namespace whyrss {

// Blocks from here on are recorded one by one; smaller ones in exact mode alone.
inline constexpr std::int64_t kFollowedBlockBytes = 4096;

struct LibraryAllocator {
  std::string_view kind;  // "jemalloc", "mimalloc" ...
  ModuleId library;       // that holds it
};

// Which one made the mapping that was made with this stack; nothing: none that is known, or its functions have no
// names.
std::optional<LibraryAllocator> allocator_that_mapped(const StackTable& stacks, StackId stack);

// Which one returned the block that was allocated with this stack; nothing: the one that serves malloc.
std::optional<LibraryAllocator> allocator_that_served(const StackTable& stacks, StackId stack);

// Whose memory of that cause a site with this stack has; nothing: malloc's, or not of the heap.
std::optional<LibraryAllocator> allocator_of(const StackTable& stacks, Cause cause, StackId stack);

// What stands for the name of a function of a stripped allocator: "[jemalloc]".
std::string nameless_function(std::string_view kind);
bool is_nameless_function(std::string_view function);

// As people who use the library call it: "Arrow's memory pool", "the allocator in libfoo.so".
std::string allocator_name(std::string_view library_path);

}  // namespace whyrss
