#include "collect/python/python_objects.h"

#include <algorithm>
#include <span>
#include <string>
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

constexpr std::size_t kCollectorHeadBytes = 16;

constexpr std::size_t kPoolsPerRead = 64;
constexpr std::size_t kMostObjects = 500'000;
constexpr std::size_t kMostTypes = 16'384;
constexpr std::uint64_t kTypeNameOffset = 24;        // PyTypeObject::tp_name
constexpr std::size_t kNameBytes = 14;               // of "numpy.ndarray" with its end, the longest
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
      take_candidates();
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
      if (!with_tensors_) continue;
      for (const std::size_t offset : kTensorOffsets)
        if (follows_collector_head(block, offset)) add_if(ObjectKind::tensor, pool + at, block, offset);
    }
  }

  void add_if(ObjectKind kind, std::uint64_t block_address, std::span<const std::byte> block, std::size_t offset) {
    const auto bytes = block.subspan(offset);
    std::uint64_t type = 0;
    if (!is_plausible(kind, bytes, type) || known_kind(type).value_or(kind) != kind) return;
    PythonObject object{.kind = kind, .block = block_address, .address = block_address + offset, .bytes = {}};
    std::memcpy(object.bytes.data(), bytes.data(), std::min(object.bytes.size(), bytes.size()));
    candidates_.push_back(object);
  }

  // Those whose types are what they should be.
  void take_candidates() {
    learn_types();
    for (const PythonObject& candidate : candidates_)
      if (known_kind(candidate.as<ObjectHead>().type) == candidate.kind) found_.push_back(candidate);
    candidates_.clear();
  }

  // The collector's head begins with the next object of its list, 0 for none; its lowest bits are flags. A tuple before
  // the object would look like one: its length, and two of its items.
  static bool follows_collector_head(std::span<const std::byte> block, std::size_t offset) {
    std::uint64_t next = 0;
    std::memcpy(&next, block.data() + offset - kCollectorHeadBytes, sizeof next);
    return next == 0 || is_object_address(next & ~std::uint64_t{7});
  }

  // Asked of every block: only few that are none of ours may get to where their type is read.
  static bool is_plausible(ObjectKind kind, std::span<const std::byte> bytes, std::uint64_t& type) {
    TensorObject object;  // an array begins with as many words: its dimensions are counted in the last of them
    std::memcpy(&object, bytes.data(), sizeof object);
    type = object.type;
    if (object.references == 0 || object.references >= kMostReferences || !is_object_address(type)) return false;
    if (kind == ObjectKind::tensor)
      return is_object_address(object.impl()) && (!object.has_flag() || (object.first & 0xff) <= 1);
    const auto dimension_count = static_cast<std::int32_t>(object.next);
    return dimension_count >= 0 && dimension_count <= kMostArrayDimensions;
  }

  // Neighbours are of one type as a rule, or of few. Nothing: not known yet.
  std::optional<ObjectKind> known_kind(std::uint64_t type) {
    KnownType& recent = recent_[type / 16 % recent_.size()];
    if (recent.type == type) return recent.kind;
    const auto known = kinds_.find(type);
    if (known == kinds_.end()) return std::nullopt;
    recent = {.type = type, .kind = known->second};
    return recent.kind;
  }

  // The types of candidates that are not known yet, all at once.
  void learn_types() {
    std::vector<std::uint64_t> types, name_addresses;
    for (const PythonObject& candidate : candidates_) {
      const std::uint64_t type = candidate.as<ObjectHead>().type;
      if (kinds_.size() == kMostTypes) break;  // what was taken for types was none
      if (kinds_.try_emplace(type, ObjectKind::other).second) types.push_back(type);
    }
    for (const std::uint64_t type : types) name_addresses.push_back(type + kTypeNameOffset);
    const std::vector<std::byte> addresses = memory_.read_each(name_addresses, sizeof(std::uint64_t));
    std::memcpy(name_addresses.data(), addresses.data(), addresses.size());
    const std::vector<std::byte> names = memory_.read_each(name_addresses, kNameBytes);
    for (std::size_t i = 0; i < types.size(); ++i) kinds_[types[i]] = kind_of(std::span(names).subspan(i * kNameBytes));
  }

  static ObjectKind kind_of(std::span<const std::byte> name_bytes) {
    std::array<char, kNameBytes + 1> name{};
    std::memcpy(name.data(), name_bytes.data(), kNameBytes);
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
  std::vector<PythonObject> candidates_, found_;
};

}  // namespace

bool has_name(const TargetMemory& memory, std::uint64_t type, std::string_view name) {
  const auto address = memory.read<std::uint64_t>(type + kTypeNameOffset);
  std::string text(name.size() + 1, ' ');
  return address.ok() && memory.read(*address, std::as_writable_bytes(std::span(text))).ok() &&
         text == std::string(name) + '\0';
}

std::optional<std::vector<PythonObject>> find_objects(const TargetMemory& memory, const Liveness& liveness,
                                                      bool with_tensors) {
  if (liveness.pool_bytes == 0) return std::vector<PythonObject>();
  Search search(memory, liveness.pool_bytes, with_tensors);
  if (!search.search(liveness.pools)) return std::nullopt;
  return search.take();
}

}  // namespace whyrss
