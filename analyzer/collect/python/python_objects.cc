#include "collect/python/python_objects.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "collect/read/pymalloc_pools.h"

namespace whyrss {
namespace {

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

class Search {
 public:
  Search(const TargetMemory& memory, std::uint64_t pool_bytes, bool with_tensors)
      : memory_(memory),
        pool_bytes_(pool_bytes),
        blocks_(with_tensors ? kTensorBlocks : kArrayBlocks),
        with_tensors_(with_tensors) {}

  // False: there are too many of them.
  bool search(std::span<const UsedPool> pools) {
    std::vector<std::uint64_t> fitting;
    for (const UsedPool& pool : pools)
      if (fits(pool.block_bytes)) fitting.push_back(pool.address);
    std::vector<std::byte> bytes(std::min(kPoolsPerRead, fitting.size()) * pool_bytes_);
    for (std::size_t first = 0; first < fitting.size(); first += kPoolsPerRead) {
      const auto some = std::span(fitting).subspan(first, std::min(kPoolsPerRead, fitting.size() - first));
      memory_.read_each(some, pool_bytes_, bytes);
      for (std::size_t i = 0; i < some.size(); ++i)
        search_pool(some[i], std::span(bytes).subspan(i * pool_bytes_, pool_bytes_));
      if (found_.size() > kMostObjects) return false;
    }
    return true;
  }
  std::vector<PythonObject> take() { return std::move(found_); }

 private:
  [[nodiscard]] bool fits(std::uint64_t block_bytes) const {
    return block_bytes >= blocks_.least && block_bytes <= blocks_.most;
  }

  void search_pool(std::uint64_t pool, std::span<const std::byte> bytes) {
    PoolHead head{};
    std::memcpy(&head, bytes.data(), sizeof head);
    const PoolUse use = use_of_pool(head, pool_bytes_);
    if (!use.used || !fits(use.block_bytes)) return;
    const std::size_t block_bytes = use.block_bytes;
    const std::size_t end = std::min<std::size_t>(head.next_offset, bytes.size());  // never handed out behind it
    for (std::size_t at = sizeof head; at + block_bytes <= end; at += block_bytes) {
      const auto block = bytes.subspan(at, block_bytes);
      if (block_bytes >= kArrayBlocks.least) add_if(ObjectKind::array, pool + at, block, kArrayOffset);
      if (with_tensors_)
        for (const std::size_t offset : kTensorOffsets) add_if(ObjectKind::tensor, pool + at, block, offset);
    }
  }

  void add_if(ObjectKind kind, std::uint64_t block_address, std::span<const std::byte> block, std::size_t offset) {
    const auto bytes = block.subspan(offset);
    std::uint64_t type = 0;
    if (!is_plausible(kind, bytes, type) || kind_of(type) != kind) return;
    PythonObject object{.kind = kind, .block = block_address, .address = block_address + offset, .bytes = {}};
    std::memcpy(object.bytes.data(), bytes.data(), std::min(object.bytes.size(), bytes.size()));
    found_.push_back(object);
  }

  // Asked of every block: only few that are none of ours may get to where their type is read.
  static bool is_plausible(ObjectKind kind, std::span<const std::byte> bytes, std::uint64_t& type) {
    TensorObject object;  // an array begins with as many words: its dimensions are counted in the last of them
    std::memcpy(&object, bytes.data(), sizeof object);
    type = object.type;
    if (object.references == 0 || object.references >= kMostReferences || !is_address(type)) return false;
    if (kind == ObjectKind::tensor) return (object.borrowed & 0xff) <= 1 && is_address(object.impl);
    const auto dimension_count = static_cast<std::int32_t>(object.impl);
    return dimension_count >= 0 && dimension_count <= kMostArrayDimensions;
  }
  static bool is_address(std::uint64_t value) { return value % 8 == 0 && value >= 4096 && value >> 47 == 0; }

  // Neighbours are of one type as a rule, or of few.
  ObjectKind kind_of(std::uint64_t type) {
    KnownType& recent = recent_[type / 16 % recent_.size()];
    if (recent.type != type) recent = {.type = type, .kind = looked_up_kind(type)};
    return recent.kind;
  }

  ObjectKind looked_up_kind(std::uint64_t type) {
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
  struct KnownType {
    std::uint64_t type = 0;
    ObjectKind kind = ObjectKind::other;
  };
  std::array<KnownType, 256> recent_;
  std::unordered_map<std::uint64_t, ObjectKind> kinds_;  // by type
  std::vector<PythonObject> found_;
};

}  // namespace

std::optional<std::vector<PythonObject>> find_objects(const TargetMemory& memory, const Liveness& liveness,
                                                      bool with_tensors) {
  if (liveness.pool_bytes == 0) return std::vector<PythonObject>();
  Search search(memory, liveness.pool_bytes, with_tensors);
  if (!search.search(liveness.pools)) return std::nullopt;
  return search.take();
}

}  // namespace whyrss
