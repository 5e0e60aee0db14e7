#include "shim/stacks/python_library.h"

#include <algorithm>
#include <cstring>

namespace whyrss::shim {

Library::Library(const LoadedImage& image) noexcept : of_image_(true), image_(image.dynamic, image.bias) {}

ShortText& ShortText::add(std::string_view piece) noexcept {
  const std::size_t size = std::min(piece.size(), sizeof(bytes_) - size_);
  std::memcpy(bytes_ + size_, piece.data(), size);
  size_ += size;
  return *this;
}

ShortText& ShortText::add(std::uint64_t number) noexcept {
  char digits[20];
  std::size_t count = 0;
  do {
    digits[count++] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count > 0) add({&digits[--count], 1});
  return *this;
}

}  // namespace whyrss::shim
