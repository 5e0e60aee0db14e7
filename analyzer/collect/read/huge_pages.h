// What anonymous huge pages are filled with: of one that a program touched in a single place all 2 MiB are resident.
#pragma once

#include <cstddef>
#include <vector>

#include "collect/read/page_walk.h"
#include "collect/read/target_memory.h"

namespace whyrss {

// So many are inspected at once, 0.3 ms each, while a process may wait for the walk: of more, every n-th one.
inline constexpr std::size_t kMostInspected = 16;

// True when the walk found any.
bool has_huge_pages(const PageWalk& walk);

// The payload of a huge_pages frame: which 4 KiB parts of them hold zeros only.
std::vector<std::byte> inspect_huge_pages(const TargetMemory& memory, const PageWalk& walk);

}  // namespace whyrss
