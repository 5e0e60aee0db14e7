#include "collect/python/array_views.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <unordered_set>

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

// PyBytesObject (Include/cpython/bytesobject.h) as far as its bytes, behind which a zero follows.
struct BytesObject {
  std::uint64_t references, type;
  std::int64_t size, hash;

  [[nodiscard]] bool is_large() const { return size >= kLeastBufferBytes && size <= kMostArrayBytes; }
};

// The array that frombuffer() made, or its views where nothing else holds it.
void add_parts(const Arrays& arrays, const Array& whole, trace::RetainingView part,
               std::vector<trace::RetainingView>& parts) {
  const auto layout = arrays.layout_of(whole);
  const auto add = [&](const Array& shown) {
    part.view = shown.block;
    const auto bytes = layout ? arrays.shown_bytes(shown, layout->item_bytes) : std::nullopt;
    part.view_bytes = bytes ? static_cast<std::uint64_t>(*bytes) : part.buffer_bytes;
    parts.push_back(part);
  };
  const auto views = arrays.views_of(whole.address);
  if (views.empty() || views.size() != whole.object.references) return add(whole);
  for (const Array* view : views) add(*view);
}

void add_if_retained(const Arrays& arrays, std::uint64_t address, const BytesObject& object,
                     std::vector<trace::RetainingView>& found) {
  const auto size = static_cast<std::uint64_t>(object.size);
  const auto wholes = arrays.views_of(address);
  if (wholes.size() != object.references) return;  // other objects hold it too
  std::vector<trace::RetainingView> parts;
  for (const Array* whole : wholes) {
    if (whole->object.data - address - sizeof object > size) return;  // does not begin in it
    add_parts(arrays, *whole, {.view = 0, .buffer = address, .buffer_bytes = size, .view_bytes = 0}, parts);
  }
  std::uint64_t sum = 0;
  for (const trace::RetainingView& part : parts) sum += part.view_bytes;
  if (sum < size / kRetainedRatio) found.insert(found.end(), parts.begin(), parts.end());
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

void find_bytes_views(const TargetMemory& memory, const Arrays& arrays, std::vector<trace::RetainingView>& found) {
  std::unordered_set<std::uint64_t> own;
  for (const Array& array : arrays.all()) own.insert(array.address);
  std::vector<std::uint64_t> bases;
  for (const auto& [base, views] : arrays.by_base())
    if (!own.contains(base) && is_object_address(base)) bases.push_back(base);
  std::ranges::sort(bases);
  const std::vector<std::byte> heads = memory.read_each(bases, sizeof(BytesObject));
  auto is_bytes = [&memory, known = std::unordered_map<std::uint64_t, bool>()](std::uint64_t type) mutable {
    const auto [found_type, is_new] = known.try_emplace(type, false);
    if (is_new) found_type->second = has_name(memory, type, "bytes");
    return found_type->second;
  };
  for (std::size_t i = 0; i < bases.size(); ++i) {
    BytesObject object;
    std::memcpy(&object, heads.data() + i * sizeof object, sizeof object);
    if (object.is_large() && is_bytes(object.type)) add_if_retained(arrays, bases[i], object, found);
  }
}

}  // namespace whyrss
