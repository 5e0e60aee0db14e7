// What a payload of a frame is put together from.
#pragma once

#include <cstddef>
#include <vector>

namespace whyrss {

inline void append_bytes(std::vector<std::byte>& payload, const void* from, std::size_t size_bytes) {
  const auto* bytes = static_cast<const std::byte*>(from);
  payload.insert(payload.end(), bytes, bytes + size_bytes);
}

template <typename T>
void append_value(std::vector<std::byte>& payload, const T& value) {
  append_bytes(payload, &value, sizeof value);
}

}  // namespace whyrss
