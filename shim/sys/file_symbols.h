// Functions by the tables of a file, .symtab too, which is not loaded: it has what a library keeps for itself. The file
// is read through a small buffer: pages of a mapping would count as the program's memory. Threads: any. Takes
// milliseconds, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace whyrss::shim {

inline constexpr std::uint64_t kMostSymbolBytes = 64ULL << 20;

// The first function whose name is a prefix and `suffix`, where another name is the same prefix and `also`: its offset
// from the image's bias. 0: there is none, the file has more than kMostSymbolBytes of names, or it is not the file that
// was loaded. `buffer`: to read through, a page or more.
std::uint64_t find_in_file(const char* path, std::span<const std::byte> build_id, std::string_view suffix,
                           std::string_view also, std::span<char> buffer) noexcept;

}  // namespace whyrss::shim
