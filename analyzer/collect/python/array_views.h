// numpy arrays and the views of them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "collect/python/python_objects.h"
#include "collect/read/target_memory.h"
#include "shim/trace/recording_format.h"

namespace whyrss {

// What counts as a large buffer, and as a small part of it.
inline constexpr std::int64_t kLeastBufferBytes = 256 * 1024;
inline constexpr std::int64_t kRetainedRatio = 16;

// No array has more; as the size of an element: all between the first and the last counts.
inline constexpr std::int64_t kMostArrayBytes = std::int64_t{1} << 46;

struct Array {
  std::uint64_t block, address;
  ArrayObject object;
};

class Arrays {
 public:
  Arrays(const TargetMemory& memory, std::span<const PythonObject> objects);
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  [[nodiscard]] std::span<const Array> all() const { return arrays_; }
  using ByBase = std::unordered_map<std::uint64_t, std::vector<const Array*>>;
  [[nodiscard]] const ByBase& by_base() const { return views_; }
  // Arrays whose memory is that of the object at this address.
  [[nodiscard]] std::span<const Array* const> views_of(std::uint64_t address) const;
  // Bytes from the first to the last element, as far as dimensions and strides tell; nothing when they do not.
  [[nodiscard]] std::optional<std::int64_t> extent_bytes(const Array& array) const;
  // The elements of a view of an array that has elements of `item_bytes`, and no more than its extent.
  [[nodiscard]] std::optional<std::int64_t> shown_bytes(const Array& view, std::int64_t item_bytes) const;
  // The extent of an array, and what one of its elements takes.
  struct Layout {
    std::int64_t extent_bytes = 0, item_bytes = kMostArrayBytes;
  };
  [[nodiscard]] std::optional<Layout> layout_of(const Array& array) const;
  // The same of all views of the object at this address together; nothing where it is `limit_bytes` or more.
  [[nodiscard]] std::optional<std::int64_t> sum_of_views(std::uint64_t address, std::int64_t limit_bytes,
                                                         std::int64_t item_bytes = kMostArrayBytes) const;

 private:
  struct Shape {
    std::array<std::int64_t, kMostArrayDimensions> dimensions{}, strides{};
    std::size_t count = 0;
  };
  [[nodiscard]] std::optional<Shape> shape_of(const Array& array) const;
  [[nodiscard]] static std::int64_t extent_of(const Shape& shape);

  const TargetMemory& memory_;
  std::vector<Array> arrays_;
  ByBase views_;
};

// Appends the views of arrays that nothing but their views holds, where these are small (retaining_views.h).
void find_array_views(const Arrays& arrays, std::vector<trace::RetainingView>& found);

// The same of bytes objects that numpy.frombuffer() made arrays of.
void find_bytes_views(const TargetMemory& memory, const Arrays& arrays, std::vector<trace::RetainingView>& found);

}  // namespace whyrss
