#include "collect/array_views.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "collect/pymalloc_pools.h"
#include "shim/trace/liveness_format.h"

namespace whyrss {
namespace {

using trace::PageLiveness;

// An array object takes 80 to 112 bytes, by numpy's version.
constexpr std::uint32_t kLeastArrayClass = 80 / 16 - 1, kMostArrayClass = 112 / 16 - 1;
constexpr std::size_t kPoolsPerRead = 64;
constexpr std::size_t kMostArrays = 500'000;
constexpr std::size_t kMostTypes = 4096;
constexpr std::int32_t kMostDimensions = 64;
constexpr std::int32_t kOwnsData = 4;                // NPY_ARRAY_OWNDATA
constexpr std::uint64_t kTypeNameOffset = 24;        // PyTypeObject::tp_name
constexpr std::uint64_t kMostReferences = 1U << 30;  // more is no count, or one of an immortal object

struct Array {
  std::uint64_t address;
  ArrayObject object;
};

std::vector<std::uint64_t> pools_in_use(const Liveness& liveness) {
  std::vector<std::uint64_t> pools;
  constexpr std::uint16_t kUsedPool = PageLiveness::pymalloc | PageLiveness::ever_held;
  for (const LivenessPages& range : liveness.ranges)
    for (std::size_t i = 0; i < range.pages.size(); ++i) {
      const std::uint64_t address = range.start + i * trace::kLivenessPageBytes;
      if ((range.pages[i] & kUsedPool) == kUsedPool && address % liveness.pool_bytes == 0) pools.push_back(address);
    }
  return pools;
}

class ArraySearch {
 public:
  ArraySearch(const TargetMemory& memory, std::uint64_t pool_bytes) : memory_(memory), pool_bytes_(pool_bytes) {}

  // False: there are too many of them.
  bool search(std::span<const std::uint64_t> pools) {
    const std::vector<std::uint64_t> of_arrays = pools_of_arrays(pools);
    for (std::size_t first = 0; first < of_arrays.size(); first += kPoolsPerRead) {
      const auto some = std::span(of_arrays).subspan(first, std::min(kPoolsPerRead, of_arrays.size() - first));
      const std::vector<std::byte> bytes = memory_.read_each(some, pool_bytes_);
      for (std::size_t i = 0; i < some.size(); ++i)
        search_pool(some[i], std::span(bytes).subspan(i * pool_bytes_, pool_bytes_));
      if (arrays_.size() > kMostArrays || names_.size() > kMostTypes) return false;
    }
    return true;
  }
  [[nodiscard]] const std::vector<Array>& arrays() const { return arrays_; }

 private:
  [[nodiscard]] std::vector<std::uint64_t> pools_of_arrays(std::span<const std::uint64_t> pools) const {
    const std::vector<std::byte> heads = memory_.read_each(pools, sizeof(PoolHead));
    std::vector<std::uint64_t> found;
    for (std::size_t i = 0; i < pools.size(); ++i) {
      PoolHead head{};
      std::memcpy(&head, heads.data() + i * sizeof head, sizeof head);
      const bool fits = head.size_class >= kLeastArrayClass && head.size_class <= kMostArrayClass;
      if (fits && use_of_pool(head, pool_bytes_).live_bytes > 0) found.push_back(pools[i]);
    }
    return found;
  }

  // Free blocks look like objects too: what they point at is checked before it counts.
  void search_pool(std::uint64_t pool, std::span<const std::byte> bytes) {
    PoolHead head{};
    std::memcpy(&head, bytes.data(), sizeof head);
    if (!use_of_pool(head, pool_bytes_).used || head.size_class > kMostArrayClass) return;
    const std::size_t block_bytes = (head.size_class + 1) * 16;
    const std::size_t end = std::min<std::size_t>(head.next_offset, bytes.size());  // never handed out behind it
    for (std::size_t at = sizeof head; at + block_bytes <= end && block_bytes >= sizeof(ArrayObject);
         at += block_bytes) {
      ArrayObject object{};
      std::memcpy(&object, bytes.data() + at, sizeof object);
      const bool plausible = object.references > 0 && object.references < kMostReferences && object.type % 8 == 0 &&
                             object.dimension_count >= 0 && object.dimension_count <= kMostDimensions;
      if (plausible && is_array(object.type)) arrays_.push_back({pool + at, object});
    }
  }

  bool is_array(std::uint64_t type) {
    if (const auto known = names_.find(type); known != names_.end()) return known->second;
    constexpr std::string_view kName = "numpy.ndarray";
    std::array<char, kName.size() + 1> name{};
    const auto name_address = memory_.read<std::uint64_t>(type + kTypeNameOffset);
    const bool readable = name_address && memory_.read(*name_address, std::as_writable_bytes(std::span(name))).ok();
    return names_[type] = readable && std::string_view(name.data(), kName.size()) == kName && name.back() == '\0';
  }

  const TargetMemory& memory_;
  std::uint64_t pool_bytes_;
  std::unordered_map<std::uint64_t, bool> names_;  // by type, whether it is numpy's array
  std::vector<Array> arrays_;
};

// Bytes from the first to the last element, as far as dimensions and strides tell; nothing when they do not.
std::optional<std::int64_t> extent_bytes(const TargetMemory& memory, const ArrayObject& array) {
  std::array<std::int64_t, kMostDimensions> dimensions{}, strides{};
  const auto count = static_cast<std::size_t>(array.dimension_count);
  const auto read = [&](std::uint64_t address, std::array<std::int64_t, kMostDimensions>& values) {
    return count == 0 || memory.read(address, std::as_writable_bytes(std::span(values).first(count))).ok();
  };
  if (!read(array.dimensions, dimensions) || !read(array.strides, strides)) return std::nullopt;
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

struct Views {
  std::vector<const Array*> views;
};

void add_if_retained(const TargetMemory& memory, const Array& owner, const Views& group,
                     std::vector<trace::RetainingView>& found) {
  if (group.views.size() != owner.object.references) return;  // somebody else holds it too
  const auto buffer_bytes = extent_bytes(memory, owner.object);
  if (!buffer_bytes || *buffer_bytes < kLeastBufferBytes) return;
  std::vector<trace::RetainingView> views;
  std::int64_t sum = 0;
  for (const Array* view : group.views) {
    const auto view_bytes = extent_bytes(memory, view->object);
    if (!view_bytes) return;
    sum += *view_bytes;
    if (sum >= *buffer_bytes / kRetainedRatio) return;
    views.push_back({.view = view->address,
                     .buffer = owner.object.data,
                     .buffer_bytes = static_cast<std::uint64_t>(*buffer_bytes),
                     .view_bytes = static_cast<std::uint64_t>(*view_bytes)});
  }
  found.insert(found.end(), views.begin(), views.end());
}

}  // namespace

bool has_numpy(const PageWalk& walk) {
  return std::ranges::any_of(
      walk.vmas, [](const WalkedVma& vma) { return vma.path.find("_multiarray_umath") != std::string::npos; });
}

std::vector<trace::RetainingView> find_retaining_views(const TargetMemory& memory, const Liveness& liveness) {
  std::vector<trace::RetainingView> found;
  if (liveness.pool_bytes == 0) return found;
  ArraySearch search(memory, liveness.pool_bytes);
  if (!search.search(pools_in_use(liveness))) return found;
  std::unordered_map<std::uint64_t, Views> groups;  // by the object that owns the data
  for (const Array& array : search.arrays())
    if (array.object.base != 0) groups[array.object.base].views.push_back(&array);
  for (const Array& array : search.arrays()) {
    if (array.object.base != 0 || (array.object.flags & kOwnsData) == 0) continue;
    if (const auto group = groups.find(array.address); group != groups.end())
      add_if_retained(memory, array, group->second, found);
  }
  return found;
}

}  // namespace whyrss
