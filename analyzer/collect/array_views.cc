#include "collect/array_views.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "collect/retaining_views.h"

namespace whyrss {
namespace {

constexpr std::size_t kMostDimensions = kMostArrayDimensions;
constexpr std::int32_t kOwnsData = 4;  // NPY_ARRAY_OWNDATA

void add_if_retained(const Arrays& arrays, const Array& owner, std::vector<trace::RetainingView>& found) {
  const auto views = arrays.views_of(owner.address);
  if (views.empty() || views.size() != owner.object.references) return;  // somebody else holds it too
  const auto buffer_bytes = arrays.extent_bytes(owner);
  if (!buffer_bytes || *buffer_bytes < kLeastBufferBytes) return;
  if (!arrays.extent_of_views(owner.address, *buffer_bytes / kRetainedRatio)) return;
  for (const Array* view : views)
    found.push_back({.view = view->block,
                     .buffer = owner.object.data,
                     .buffer_bytes = static_cast<std::uint64_t>(*buffer_bytes),
                     .view_bytes = static_cast<std::uint64_t>(arrays.extent_bytes(*view).value_or(0))});
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

std::optional<std::int64_t> Arrays::extent_bytes(const Array& array) const {
  std::array<std::int64_t, kMostDimensions> dimensions{}, strides{};
  const auto count = static_cast<std::size_t>(array.object.dimension_count);
  const auto read = [&](std::uint64_t address, std::array<std::int64_t, kMostDimensions>& values) {
    return count == 0 || memory_.read(address, std::as_writable_bytes(std::span(values).first(count))).ok();
  };
  if (!read(array.object.dimensions, dimensions) || !read(array.object.strides, strides)) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 46;
  std::int64_t largest = 8;  // of a scalar
  for (std::size_t i = 0; i < count; ++i) {
    if (dimensions[i] < 0 || dimensions[i] > kMost || strides[i] > kMost || strides[i] < -kMost) return std::nullopt;
    if (dimensions[i] == 0) return 0;
    const std::int64_t stride = std::abs(strides[i]);
    if (stride != 0 && dimensions[i] > kMost / stride) return std::nullopt;
    largest = std::max(largest, dimensions[i] * stride);
  }
  return largest;
}

std::optional<std::int64_t> Arrays::extent_of_views(std::uint64_t address, std::int64_t limit_bytes) const {
  std::int64_t sum = 0;
  for (const Array* view : views_of(address)) {
    const auto bytes = extent_bytes(*view);
    if (!bytes || (sum += *bytes) >= limit_bytes) return std::nullopt;
  }
  return sum;
}

void find_array_views(const Arrays& arrays, std::vector<trace::RetainingView>& found) {
  for (const Array& array : arrays.all())
    if (array.object.base == 0 && (array.object.flags & kOwnsData) != 0) add_if_retained(arrays, array, found);
}

}  // namespace whyrss
