// torch tensors that share one storage.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "collect/python/array_views.h"
#include "collect/python/python_objects.h"
#include "collect/read/target_memory.h"
#include "shim/trace/recording_format.h"

namespace whyrss {

// What follows is the layout of torch 1.9 to 2.15, each part of it checked before it counts: a torch that lays its
// objects out in another way has no views here. Of its versions three are known:
//   to 2.3      two words for the counts of references and of weak ones
//   2.4 to 2.9  both in one word
//   from 2.10   the same; an object holds its tensor itself (TensorObject)

// The beginning of c10::TensorImpl (c10/core/TensorImpl.h), in words of 8 bytes: table of methods, counts, storage;
// then among others sizes and strides, the offset into the storage, the type of an element.
using TensorWords = std::array<std::uint64_t, 24>;

// c10::StorageImpl (c10/core/StorageImpl.h): table of methods, counts, data, two of its deleter, device, bytes.
using StorageWords = std::array<std::uint64_t, 8>;

// Appends the tensors that keep a large storage by showing a small part of it (retaining_views.h). A tensor that only
// arrays of numpy hold shows what they show.
void find_tensor_views(const TargetMemory& memory, std::span<const PythonObject> objects, const Arrays& arrays,
                       std::vector<trace::RetainingView>& found);

}  // namespace whyrss
