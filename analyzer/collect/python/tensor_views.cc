#include "collect/python/tensor_views.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <unordered_map>

namespace whyrss {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 46;

// c10::ScalarType in its order (c10/core/ScalarType.h): uint8 int8 int16 int32 int64 half float double, three complex
// types, bool, three of quantized numbers, bfloat16.
constexpr std::array<std::int64_t, 16> kElementBytes{1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2};

// c10::impl::SizesAndStrides and what follows it in a TensorImpl. Tensors of more dimensions have them elsewhere.
constexpr std::size_t kMostDimensions = 5;
struct Geometry {
  std::uint64_t dimension_count;
  std::array<std::int64_t, kMostDimensions> sizes, strides;
  std::int64_t storage_offset, element_count;
  std::uint16_t element_type, padding[3];
};
static_assert(sizeof(Geometry) == 14 * 8);
// Where it begins among TensorImpl::words: at the first in all versions that were seen; the others would be one more
// or one less member before it.
constexpr std::array<std::size_t, 3> kGeometryWords{5, 4, 6};

// Counts may share their word with those of weak references.
std::uint64_t count_of(std::uint64_t references) { return references & 0xffff'ffff; }

// The bytes from the storage's begin to behind the last element, and those from the first element on.
struct Extent {
  std::int64_t end_bytes, bytes;
};

std::optional<Extent> extent_of(const Geometry& geometry) {
  if (geometry.dimension_count > kMostDimensions || geometry.element_type >= kElementBytes.size()) return std::nullopt;
  if (geometry.storage_offset < 0 || geometry.storage_offset > kMost) return std::nullopt;
  std::int64_t elements = 1, last = 0;
  for (std::size_t i = 0; i < geometry.dimension_count; ++i) {
    const std::int64_t size = geometry.sizes[i], stride = geometry.strides[i];
    if (size < 0 || stride < 0 || size > kMost || stride > kMost) return std::nullopt;
    if (size > 0 && (elements > kMost / size || stride > kMost / size)) return std::nullopt;
    elements *= size;
    last += (size - 1) * stride;
  }
  if (elements != geometry.element_count) return std::nullopt;
  const std::int64_t element_bytes = kElementBytes[geometry.element_type];
  const std::int64_t bytes = elements == 0 ? 0 : (last + 1) * element_bytes;
  return Extent{.end_bytes = geometry.storage_offset * element_bytes + bytes, .bytes = bytes};
}

std::optional<Extent> extent_of(const TensorImpl& impl) {
  for (const std::size_t first : kGeometryWords) {
    Geometry geometry;
    std::memcpy(&geometry, impl.words + first, sizeof geometry);
    if (const auto extent = extent_of(geometry)) return extent;
  }
  return std::nullopt;
}

struct Tensor {
  std::uint64_t block, address;
  TensorObject object;
  TensorImpl impl;
};

std::vector<Tensor> read_tensors(const TargetMemory& memory, std::span<const PythonObject> objects) {
  std::vector<Tensor> tensors;
  std::vector<std::uint64_t> addresses;
  for (const PythonObject& found : objects) {
    if (found.kind != ObjectKind::tensor) continue;
    const auto object = found.as<TensorObject>();
    tensors.push_back({.block = found.block, .address = found.address, .object = object, .impl = {}});
    addresses.push_back(object.impl);
  }
  const std::vector<std::byte> impls = memory.read_each(addresses, sizeof(TensorImpl));
  for (std::size_t i = 0; i < tensors.size(); ++i)
    std::memcpy(&tensors[i].impl, impls.data() + i * sizeof(TensorImpl), sizeof(TensorImpl));
  return tensors;
}

// Tensors of one storage.
class Sharers {
 public:
  Sharers(const StorageImpl& storage, const Arrays& arrays) : storage_(storage), arrays_(arrays) {}

  void add(const Tensor& tensor) { ((tensor.object.borrowed & 1) != 0 ? dropped_ : held_).push_back(&tensor); }

  void add_if_retained(std::vector<trace::RetainingView>& found) const {
    const auto buffer_bytes = static_cast<std::int64_t>(storage_.bytes);
    if (buffer_bytes < kLeastBufferBytes || buffer_bytes > kMost || held_.empty() || !are_all()) return;
    std::vector<trace::RetainingView> views;
    std::int64_t sum = 0;
    for (const Tensor* tensor : held_) {
      const auto bytes = shown_bytes(*tensor);
      if (!bytes || (sum += *bytes) >= buffer_bytes / kRetainedRatio) return;
      views.push_back({.view = tensor->block,
                       .buffer = storage_.data,
                       .buffer_bytes = storage_.bytes,
                       .view_bytes = static_cast<std::uint64_t>(*bytes)});
    }
    found.insert(found.end(), views.begin(), views.end());
  }

 private:
  // Nothing else holds the storage. Each view keeps the tensor that it was taken from, which Python may have dropped.
  [[nodiscard]] bool are_all() const {
    if (count_of(storage_.references) != held_.size() + dropped_.size() || dropped_.size() > 1) return false;
    return dropped_.empty() || count_of(dropped_.front()->impl.references) == held_.size();
  }

  [[nodiscard]] std::optional<std::int64_t> shown_bytes(const Tensor& tensor) const {
    const auto extent = extent_of(tensor.impl);
    if (!extent || extent->end_bytes > static_cast<std::int64_t>(storage_.bytes)) return std::nullopt;
    const auto arrays = arrays_.views_of(tensor.address);
    if (arrays.size() != tensor.object.references) return extent->bytes;
    std::int64_t sum = 0;
    for (const Array* array : arrays) {
      const bool only_viewed = arrays_.views_of(array->address).size() == array->object.references;
      const auto bytes =
          only_viewed ? arrays_.sum_of_views(array->address, extent->bytes) : arrays_.extent_bytes(*array);
      if (!bytes || (sum += *bytes) >= extent->bytes) return extent->bytes;
    }
    return sum;
  }

  StorageImpl storage_;
  const Arrays& arrays_;
  std::vector<const Tensor*> held_, dropped_;
};

}  // namespace

void find_tensor_views(const TargetMemory& memory, std::span<const PythonObject> objects, const Arrays& arrays,
                       std::vector<trace::RetainingView>& found) {
  const std::vector<Tensor> tensors = read_tensors(memory, objects);
  std::vector<std::uint64_t> storages;
  for (const Tensor& tensor : tensors) storages.push_back(tensor.impl.storage);
  const std::vector<std::byte> bytes = memory.read_each(storages, sizeof(StorageImpl));
  std::unordered_map<std::uint64_t, Sharers> sharers;  // by storage
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    StorageImpl storage;
    std::memcpy(&storage, bytes.data() + i * sizeof storage, sizeof storage);
    if (storage.bytes != 0) sharers.try_emplace(storages[i], storage, arrays).first->second.add(tensors[i]);
  }
  for (const auto& [storage, tensors_of] : sharers) tensors_of.add_if_retained(found);
}

}  // namespace whyrss
