// numpy arrays and the views of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "collect/python_objects.h"
#include "collect/target_memory.h"
#include "shim/trace/recording_format.h"

namespace whyrss {

struct Array {
  std::uint64_t block, address;
  ArrayObject object;
};

class Arrays {
 public:
  Arrays(const TargetMemory& memory, std::span<const PythonObject> objects);
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  [[nodiscard]] std::span<const Array> all() const { return arrays_; }
  // Arrays whose memory is that of the object at this address.
  [[nodiscard]] std::span<const Array* const> views_of(std::uint64_t address) const;
  // Bytes from the first to the last element, as far as dimensions and strides tell; nothing when they do not.
  [[nodiscard]] std::optional<std::int64_t> extent_bytes(const Array& array) const;
  // The same of all views of the object at this address together; nothing where it is `limit_bytes` or more.
  [[nodiscard]] std::optional<std::int64_t> extent_of_views(std::uint64_t address, std::int64_t limit_bytes) const;

 private:
  const TargetMemory& memory_;
  std::vector<Array> arrays_;
  std::unordered_map<std::uint64_t, std::vector<const Array*>> views_;  // by base
};

// Appends the views of arrays that nothing but their views holds, where these are small (retaining_views.h).
void find_array_views(const Arrays& arrays, std::vector<trace::RetainingView>& found);

}  // namespace whyrss
