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
// types, bool, three of quantized numbers, bfloat16, two more of quantized numbers, five of bits, four floats of 8
// bits, uint16 uint32 uint64.
constexpr std::array<std::int64_t, 30> kElementBytes{1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4,
                                                     2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1,  1, 2, 4, 8};

// c10::impl::SizesAndStrides and what follows it in a TensorImpl. Tensors of more dimensions have them elsewhere.
constexpr std::size_t kMostDimensions = 5;
struct Geometry {
  std::uint64_t dimension_count;
  std::array<std::int64_t, kMostDimensions> sizes, strides;
  std::int64_t storage_offset, element_count;
  std::uint16_t element_type, padding[3];
};
static_assert(sizeof(Geometry) == 14 * 8);
// Where it begins, in words behind the storage: at the first to torch 2.9, at the second from 2.10 on; the last would
// be one more member before it.
constexpr std::array<std::size_t, 3> kGeometryWords{6, 5, 7};

// The counts of c10::intrusive_ptr_target, behind the table of methods. In one word, the upper half is that of weak
// references, at least 1 while there are others, and says in its last bit whether Python has an object of it.
constexpr std::size_t kCounts = 1;
bool are_in_one_word(std::uint64_t counts) { return counts >> 32 != 0; }
std::uint64_t references_of(std::uint64_t counts) { return counts & 0xffff'ffff; }
bool has_python_object(std::uint64_t counts) { return counts >> 63 != 0; }
std::size_t first_behind(std::uint64_t counts) { return kCounts + (are_in_one_word(counts) ? 1 : 2); }

// The bytes from the storage's begin to behind the last element, and those of the elements, wherever they lie.
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
  const std::int64_t spanned = elements == 0 ? 0 : last + 1;  // fewer than `elements` where these repeat
  return Extent{.end_bytes = (geometry.storage_offset + spanned) * element_bytes,
                .bytes = std::min(elements, spanned) * element_bytes};
}

struct Tensor {
  std::uint64_t block, address;
  TensorObject object;
  TensorWords impl;

  [[nodiscard]] std::uint64_t references() const { return references_of(impl[kCounts]); }
  [[nodiscard]] std::uint64_t storage() const { return impl[first_behind(impl[kCounts])]; }
  // Only C++ keeps it. Where the object holds the tensor, C++ holds the object with one reference in all.
  [[nodiscard]] bool is_dropped() const {
    if (object.has_flag()) return (object.first & 1) != 0;
    return object.references == 1 && references() > 1 && has_python_object(impl[kCounts]);
  }
  // Of them, those of C++ where Python has dropped it.
  [[nodiscard]] std::uint64_t holders() const { return references() - (object.has_flag() ? 0 : 1); }
};

struct Storage {
  std::uint64_t references, data, bytes;
};

std::optional<Extent> extent_of(const Tensor& tensor) {
  for (const std::size_t behind : kGeometryWords) {
    const std::size_t first = first_behind(tensor.impl[kCounts]) + behind;
    if (first + sizeof(Geometry) / sizeof(std::uint64_t) > tensor.impl.size()) continue;
    Geometry geometry;
    std::memcpy(&geometry, tensor.impl.data() + first, sizeof geometry);
    if (const auto extent = extent_of(geometry)) return extent;
  }
  return std::nullopt;
}

Storage storage_of(std::span<const std::byte> bytes) {
  StorageWords words;
  std::memcpy(words.data(), bytes.data(), sizeof words);
  const std::size_t first = first_behind(words[kCounts]);
  return {.references = references_of(words[kCounts]), .data = words[first], .bytes = words[first + 4]};
}

std::vector<Tensor> read_tensors(const TargetMemory& memory, std::span<const PythonObject> objects) {
  std::vector<Tensor> tensors;
  std::vector<std::uint64_t> addresses;
  for (const PythonObject& found : objects) {
    if (found.kind != ObjectKind::tensor) continue;
    const auto object = found.as<TensorObject>();
    tensors.push_back({.block = found.block, .address = found.address, .object = object, .impl = {}});
    addresses.push_back(object.impl());
  }
  const std::vector<std::byte> impls = memory.read_each(addresses, sizeof(TensorWords));
  for (std::size_t i = 0; i < tensors.size(); ++i)
    std::memcpy(tensors[i].impl.data(), impls.data() + i * sizeof(TensorWords), sizeof(TensorWords));
  return tensors;
}

// Tensors of one storage.
class Sharers {
 public:
  Sharers(const Storage& storage, const Arrays& arrays) : storage_(storage), arrays_(arrays) {}

  void add(const Tensor& tensor) { (tensor.is_dropped() ? dropped_ : held_).push_back(&tensor); }

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
    if (storage_.references != held_.size() + dropped_.size() || dropped_.size() > 1) return false;
    return dropped_.empty() || dropped_.front()->holders() == held_.size();
  }

  [[nodiscard]] std::optional<std::int64_t> shown_bytes(const Tensor& tensor) const {
    const auto extent = extent_of(tensor);
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

  Storage storage_;
  const Arrays& arrays_;
  std::vector<const Tensor*> held_, dropped_;
};

}  // namespace

void find_tensor_views(const TargetMemory& memory, std::span<const PythonObject> objects, const Arrays& arrays,
                       std::vector<trace::RetainingView>& found) {
  const std::vector<Tensor> tensors = read_tensors(memory, objects);
  std::vector<std::uint64_t> storages;
  for (const Tensor& tensor : tensors) storages.push_back(tensor.storage());
  const std::vector<std::byte> bytes = memory.read_each(storages, sizeof(StorageWords));
  std::unordered_map<std::uint64_t, Sharers> sharers;  // by storage
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Storage storage = storage_of(std::span(bytes).subspan(i * sizeof(StorageWords), sizeof(StorageWords)));
    if (storage.bytes != 0) sharers.try_emplace(storages[i], storage, arrays).first->second.add(tensors[i]);
  }
  for (const auto& [storage, tensors_of] : sharers) tensors_of.add_if_retained(found);
}

}  // namespace whyrss
