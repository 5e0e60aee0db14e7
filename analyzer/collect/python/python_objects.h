// Array and tensor objects of a CPython, found by reading its small-object pools.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "collect/read/liveness_read.h"
#include "collect/read/target_memory.h"

namespace whyrss {

enum class ObjectKind : std::uint8_t { other, array, tensor };

constexpr bool is_object_address(std::uint64_t value) { return value % 8 == 0 && value >= 4096 && value >> 47 == 0; }

struct PythonObject {
  ObjectKind kind;
  std::uint64_t block, address;  // of the pool's block, and of the object in it, behind what the collector keeps there
  std::array<std::byte, 72> bytes;

  template <typename T>
  [[nodiscard]] T as() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof bytes);
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

// The head of every object (Include/object.h). Free blocks look like objects too: what one points at is to be checked.
struct ObjectHead {
  std::uint64_t references, type;
};

// PyArrayObject_fields of numpy's ndarraytypes.h, the same since numpy 1.7; 96 bytes and more with its later members.
struct ArrayObject {
  std::uint64_t references, type;
  std::uint64_t data;
  std::int32_t dimension_count, padding;
  std::uint64_t dimensions, strides;  // addresses of dimension_count x i64
  std::uint64_t base;                 // the object that owns `data`, 0: this one
  std::uint64_t description;
  std::int32_t flags, padding2;
};
static_assert(sizeof(ArrayObject) == 72);
inline constexpr std::int32_t kMostArrayDimensions = 64;

// THPVariable of torch 1.9 on (torch/csrc/autograd/python_variable.h).
struct TensorObject {
  std::uint64_t references, type;
  // From torch 2.10 on c10::TensorImpl*. Before: MaybeOwned::isBorrowed_, 1 when Python has dropped it, and only C++
  // keeps it; `next` is c10::TensorImpl* then.
  std::uint64_t first, next;

  [[nodiscard]] bool has_flag() const { return !is_object_address(first); }
  [[nodiscard]] std::uint64_t impl() const { return has_flag() ? next : first; }
};

// True when the type at this address has this name; false also where it cannot be read.
bool has_name(const TargetMemory& memory, std::uint64_t type, std::string_view name);

// Objects of numpy.ndarray and, where asked for, of torch.Tensor. Nothing when there are too many to read in a
// moment.
std::optional<std::vector<PythonObject>> find_objects(const TargetMemory& memory, const Liveness& liveness,
                                                      bool with_tensors);

}  // namespace whyrss
