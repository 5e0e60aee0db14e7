// Reading structs and texts out of untrusted bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace whyrss {

using Bytes = std::span<const std::byte>;

// Takes things off the front; the first one that does not fit makes it bad for good.
class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) : rest_(bytes) {}

  template <typename T>
  bool take(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const Bytes bytes = take_bytes(sizeof(T));
    if (bad_) return false;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return true;
  }

  Bytes take_bytes(std::size_t size_bytes) {
    if (bad_ || size_bytes > rest_.size()) {
      bad_ = true;
      return {};
    }
    const Bytes taken = rest_.first(size_bytes);
    rest_ = rest_.subspan(size_bytes);
    return taken;
  }

  std::string take_text(std::size_t size_bytes) {
    const Bytes bytes = take_bytes(size_bytes);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  [[nodiscard]] bool bad() const { return bad_; }
  [[nodiscard]] Bytes rest() const { return rest_; }

 private:
  Bytes rest_;
  bool bad_ = false;
};

inline std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace whyrss
