#include "collect/python_objects.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "collect/pymalloc_pools.h"
#include "shim/trace/liveness_format.h"

namespace whyrss {
namespace {

using trace::PageLiveness;

// Bytes of the blocks that such objects take, by version. Tensors have the collector's head before them, and from
// Python 3.11 on, with it, the pointers to their attributes and weak references.
struct BlockSizes {
  std::uint32_t least, most;
};
constexpr BlockSizes kArrayBlocks{80, 112}, kTensorBlocks{64, 128};
constexpr std::size_t kArrayOffset = 0;
constexpr std::array<std::size_t, 2> kTensorOffsets{16, 32};

constexpr std::size_t kPoolsPerRead = 64;
constexpr std::size_t kMostObjects = 500'000;
constexpr std::size_t kMostTypes = 16'384;
constexpr std::uint64_t kTypeNameOffset = 24;        // PyTypeObject::tp_name
constexpr std::uint64_t kMostReferences = 1U << 30;  // more is no count, or one of an immortal object

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

class Search {
 public:
  Search(const TargetMemory& memory, std::uint64_t pool_bytes, bool with_tensors)
      : memory_(memory),
        pool_bytes_(pool_bytes),
        blocks_(with_tensors ? kTensorBlocks : kArrayBlocks),
        with_tensors_(with_tensors) {}

  // False: there are too many of them.
  bool search(std::span<const std::uint64_t> pools) {
    const std::vector<std::uint64_t> fitting = pools_that_fit(pools);
    for (std::size_t first = 0; first < fitting.size(); first += kPoolsPerRead) {
      const auto some = std::span(fitting).subspan(first, std::min(kPoolsPerRead, fitting.size() - first));
      const std::vector<std::byte> bytes = memory_.read_each(some, pool_bytes_);
      for (std::size_t i = 0; i < some.size(); ++i)
        search_pool(some[i], std::span(bytes).subspan(i * pool_bytes_, pool_bytes_));
      if (found_.size() > kMostObjects) return false;
    }
    return true;
  }
  std::vector<PythonObject> take() { return std::move(found_); }

 private:
  [[nodiscard]] bool fits(const PoolHead& head) const {
    const std::uint64_t block_bytes = (std::uint64_t{head.size_class} + 1) * 16;
    return block_bytes >= blocks_.least && block_bytes <= blocks_.most;
  }

  [[nodiscard]] std::vector<std::uint64_t> pools_that_fit(std::span<const std::uint64_t> pools) const {
    const std::vector<std::byte> heads = memory_.read_each(pools, sizeof(PoolHead));
    std::vector<std::uint64_t> found;
    for (std::size_t i = 0; i < pools.size(); ++i) {
      PoolHead head{};
      std::memcpy(&head, heads.data() + i * sizeof head, sizeof head);
      if (fits(head) && use_of_pool(head, pool_bytes_).live_bytes > 0) found.push_back(pools[i]);
    }
    return found;
  }

  void search_pool(std::uint64_t pool, std::span<const std::byte> bytes) {
    PoolHead head{};
    std::memcpy(&head, bytes.data(), sizeof head);
    if (!use_of_pool(head, pool_bytes_).used || !fits(head)) return;
    const std::size_t block_bytes = (head.size_class + 1) * 16;
    const std::size_t end = std::min<std::size_t>(head.next_offset, bytes.size());  // never handed out behind it
    for (std::size_t at = sizeof head; at + block_bytes <= end; at += block_bytes) {
      const auto block = bytes.subspan(at, block_bytes);
      if (block_bytes >= kArrayBlocks.least) add_if(ObjectKind::array, pool + at, block, kArrayOffset);
      if (with_tensors_)
        for (const std::size_t offset : kTensorOffsets) add_if(ObjectKind::tensor, pool + at, block, offset);
    }
  }

  void add_if(ObjectKind kind, std::uint64_t block_address, std::span<const std::byte> block, std::size_t offset) {
    PythonObject object{.kind = kind, .block = block_address, .address = block_address + offset, .bytes = {}};
    std::memcpy(object.bytes.data(), block.data() + offset, std::min(object.bytes.size(), block.size() - offset));
    if (is_plausible(object) && kind_of(object.as<ObjectHead>().type) == kind) found_.push_back(object);
  }

  // Asked of every block: only few that are none of ours may get to where their type is read.
  static bool is_plausible(const PythonObject& object) {
    const auto head = object.as<ObjectHead>();
    if (head.references == 0 || head.references >= kMostReferences || !is_address(head.type)) return false;
    if (object.kind == ObjectKind::tensor) {
      const auto tensor = object.as<TensorObject>();
      return (tensor.borrowed & 0xff) <= 1 && is_address(tensor.impl);
    }
    const auto array = object.as<ArrayObject>();
    return array.dimension_count >= 0 && array.dimension_count <= kMostArrayDimensions;
  }
  static bool is_address(std::uint64_t value) { return value % 8 == 0 && value >= 4096 && value >> 47 == 0; }

  ObjectKind kind_of(std::uint64_t type) {
    if (const auto known = kinds_.find(type); known != kinds_.end()) return known->second;
    if (kinds_.size() == kMostTypes) return ObjectKind::other;  // what was taken for types was none
    return kinds_[type] = read_kind(type);
  }

  [[nodiscard]] ObjectKind read_kind(std::uint64_t type) const {
    std::array<char, 16> name{};
    const auto name_address = memory_.read<std::uint64_t>(type + kTypeNameOffset);
    if (!name_address || !memory_.read(*name_address, std::as_writable_bytes(std::span(name).first(14))))
      return ObjectKind::other;
    const std::string_view text(name.data());
    if (text == "numpy.ndarray") return ObjectKind::array;
    if (text == "Tensor" || text == "Parameter") return ObjectKind::tensor;
    return ObjectKind::other;
  }

  const TargetMemory& memory_;
  std::uint64_t pool_bytes_;
  BlockSizes blocks_;
  bool with_tensors_;
  std::unordered_map<std::uint64_t, ObjectKind> kinds_;  // by type
  std::vector<PythonObject> found_;
};

}  // namespace

std::optional<std::vector<PythonObject>> find_objects(const TargetMemory& memory, const Liveness& liveness,
                                                      bool with_tensors) {
  if (liveness.pool_bytes == 0) return std::vector<PythonObject>();
  Search search(memory, liveness.pool_bytes, with_tensors);
  if (!search.search(pools_in_use(liveness))) return std::nullopt;
  return search.take();
}

}  // namespace whyrss
