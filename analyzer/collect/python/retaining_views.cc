#include "collect/python/retaining_views.h"

#include <algorithm>
#include <string_view>

#include "collect/python/array_views.h"
#include "collect/python/python_objects.h"
#include "collect/python/tensor_views.h"

namespace whyrss {
namespace {

bool has_mapped(const PageWalk& walk, std::string_view file) {
  return std::ranges::any_of(walk.vmas, [&](const WalkedVma& vma) { return vma.path.find(file) != std::string::npos; });
}

}  // namespace

bool has_tensors(const PageWalk& walk) { return has_mapped(walk, "libtorch_python"); }

bool has_views(const PageWalk& walk) { return has_mapped(walk, "_multiarray_umath") || has_tensors(walk); }

std::vector<trace::RetainingView> find_retaining_views(const TargetMemory& memory, const Liveness& liveness,
                                                       bool with_tensors) {
  std::vector<trace::RetainingView> found;
  const auto objects = find_objects(memory, liveness, with_tensors);
  if (!objects) return found;
  const Arrays arrays(memory, *objects);
  find_array_views(arrays, found);
  find_bytes_views(memory, arrays, found);
  if (with_tensors) find_tensor_views(memory, *objects, arrays, found);
  return found;
}

}  // namespace whyrss
