#include "collect/python/array_views.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace whyrss {
namespace {

constexpr std::int64_t kScalarBytes = 8;
constexpr std::int32_t kOwnsData = 4;  // NPY_ARRAY_OWNDATA

void add_if_retained(const Arrays& arrays, const Array& owner, std::vector<trace::RetainingView>& found) {
  const auto views = arrays.views_of(owner.address);
  if (views.empty() || views.size() != owner.object.references) return;  // other objects hold it too
  const auto layout = arrays.layout_of(owner);
  if (!layout || layout->extent_bytes < kLeastBufferBytes) return;
  if (!arrays.sum_of_views(owner.address, layout->extent_bytes / kRetainedRatio, layout->item_bytes)) return;
  for (const Array* view : views)
    found.push_back(
        {.view = view->block,
         .buffer = owner.object.data,
         .buffer_bytes = static_cast<std::uint64_t>(layout->extent_bytes),
         .view_bytes = static_cast<std::uint64_t>(arrays.shown_bytes(*view, layout->item_bytes).value_or(0))});
}

}  // namespace

Arrays::Arrays(const TargetMemory& memory, std::span<const PythonObject> objects) : memory_(memory) {
  for (const PythonObject& object : objects)
    if (object.kind == ObjectKind::array)
      arrays_.push_back({.block = object.block, .address = object.address, .object = object.as<ArrayObject>()});
  for (const Array& array : arrays_)
    if (array.object.base != 0) views_[array.object.base].push_back(&array);
}

std::span<const Array* const> Arrays::views_of(std::uint64_t address) const {
  const auto found = views_.find(address);
  return found == views_.end() ? std::span<const Array* const>() : found->second;
}

std::optional<Arrays::Shape> Arrays::shape_of(const Array& array) const {
  Shape shape{.count = static_cast<std::size_t>(array.object.dimension_count)};
  const auto read = [&](std::uint64_t address, auto& values) {
    return shape.count == 0 || memory_.read(address, std::as_writable_bytes(std::span(values).first(shape.count))).ok();
  };
  if (!read(array.object.dimensions, shape.dimensions) || !read(array.object.strides, shape.strides))
    return std::nullopt;
  const auto is_sound = [](std::int64_t dimension, std::int64_t stride) {
    return dimension >= 0 && dimension <= kMostArrayBytes && std::abs(stride) <= kMostArrayBytes &&
           (stride == 0 || dimension <= kMostArrayBytes / std::abs(stride));
  };
  for (std::size_t i = 0; i < shape.count; ++i)
    if (!is_sound(shape.dimensions[i], shape.strides[i])) return std::nullopt;
  return shape;
}

std::int64_t Arrays::extent_of(const Shape& shape) {
  std::int64_t largest = kScalarBytes;
  for (std::size_t i = 0; i < shape.count; ++i) {
    if (shape.dimensions[i] == 0) return 0;
    largest = std::max(largest, shape.dimensions[i] * std::abs(shape.strides[i]));
  }
  return largest;
}

std::optional<std::int64_t> Arrays::extent_bytes(const Array& array) const {
  const auto shape = shape_of(array);
  return shape ? std::optional(extent_of(*shape)) : std::nullopt;
}

std::optional<Arrays::Layout> Arrays::layout_of(const Array& array) const {
  const auto shape = shape_of(array);
  if (!shape) return std::nullopt;
  Layout layout{.extent_bytes = extent_of(*shape)};
  for (std::size_t i = 0; i < shape->count; ++i)
    if (shape->dimensions[i] > 1 && shape->strides[i] != 0)
      layout.item_bytes = std::min(layout.item_bytes, std::abs(shape->strides[i]));
  return layout;
}

std::optional<std::int64_t> Arrays::shown_bytes(const Array& view, std::int64_t item_bytes) const {
  const auto shape = shape_of(view);
  if (!shape) return std::nullopt;
  const std::int64_t extent = extent_of(*shape);
  std::int64_t bytes = item_bytes;
  for (std::size_t i = 0; i < shape->count; ++i) {
    if (shape->dimensions[i] > 1 && bytes > extent / shape->dimensions[i]) return extent;  // or repeats elements
    bytes *= shape->dimensions[i];
  }
  return std::min(bytes, extent);
}

std::optional<std::int64_t> Arrays::sum_of_views(std::uint64_t address, std::int64_t limit_bytes,
                                                 std::int64_t item_bytes) const {
  std::int64_t sum = 0;
  for (const Array* view : views_of(address)) {
    const auto bytes = shown_bytes(*view, item_bytes);
    if (!bytes || (sum += *bytes) >= limit_bytes) return std::nullopt;
  }
  return sum;
}

void find_array_views(const Arrays& arrays, std::vector<trace::RetainingView>& found) {
  for (const Array& array : arrays.all())
    if (array.object.base == 0 && (array.object.flags & kOwnsData) != 0) add_if_retained(arrays, array, found);
}

}  // namespace whyrss
