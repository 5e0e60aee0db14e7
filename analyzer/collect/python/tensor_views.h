// torch tensors that share one storage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collect/python/array_views.h"
#include "collect/python/python_objects.h"
#include "collect/read/target_memory.h"
#include "shim/trace/recording_format.h"

namespace whyrss {

// What follows is the layout of torch 1.9 to 2.8, each part of it checked before it counts: a torch that lays its
// objects out in another way has no views here.

// The beginning of c10::TensorImpl (c10/core/TensorImpl.h), in words of 8 bytes.
struct TensorImpl {
  std::uint64_t methods, references, weak_references, storage;
  std::uint64_t words[20];  // among them: sizes and strides, the offset into the storage, the type of an element
};

// c10::StorageImpl (c10/core/StorageImpl.h).
struct StorageImpl {
  std::uint64_t methods, references, weak_references;
  std::uint64_t data, deleter[2], device;
  std::uint64_t bytes;
};

// Appends the tensors that keep a large storage by showing a small part of it (retaining_views.h). A tensor that only
// arrays of numpy hold shows what they show.
void find_tensor_views(const TargetMemory& memory, std::span<const PythonObject> objects, const Arrays& arrays,
                       std::vector<trace::RetainingView>& found);

}  // namespace whyrss
