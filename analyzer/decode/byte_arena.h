// Copies of small records, kept together: one allocation for many of them, and none of them ever moves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "decode/bytes.h"

namespace whyrss {

class ByteArena {
 public:
  // The copy lives as long as the arena.
  Bytes keep(Bytes bytes) {
    if (bytes.size() > left_) grow(bytes.size());
    std::byte* const copy = next_;
    if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
    next_ += bytes.size();
    left_ -= bytes.size();
    return {copy, bytes.size()};
  }

 private:
  static constexpr std::size_t kLeastBytes = 4096, kMostBytes = 1024 * 1024;

  void grow(std::size_t needed_bytes) {
    block_bytes_ = std::clamp(block_bytes_ * 2, kLeastBytes, kMostBytes);
    left_ = std::max(block_bytes_, needed_bytes);
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(left_));
    next_ = blocks_.back().get();
  }

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0, block_bytes_ = 0;
};

}  // namespace whyrss
