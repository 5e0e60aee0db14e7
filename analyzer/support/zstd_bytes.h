// Bytes to a zstd frame and back, in one call. Throws std::bad_alloc where zstd finds no memory, which it takes when it
// is used.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace whyrss {

// How many bytes a frame of so many takes at most.
std::size_t most_compressed_bytes(std::size_t bytes);
// The size of the frame at the begin of `to`, which has room for most_compressed_bytes().
std::size_t compress(std::span<const std::byte> from, std::span<std::byte> to, int level);
// How many bytes came out; nothing where `from` is no frame, or `to` too small.
std::optional<std::size_t> decompress(std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace whyrss
