// What a process freed on its way out: as main() returned, by destructors of what static variables hold, or by its own
// doing right before (nothing tells them apart). Its figures at the end are those of a program that has done its work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "report/view/trend.h"
#include "report/view/view.h"

namespace whyrss {

struct FinalFrees {
  enum class Heap {
    as_before,  // it freed little of its heap, or nearly all of that a while before its end
    freed,      // most of it, as it had done again and again, or no more than is worth naming
    late,       // which it may have made for that moment
    held,       // which it had grown evenly, or had for a second and an eighth of its life
  };
  double until_s = 0;                            // the last moment before
  View before{};                                 // the process as of then
  std::int64_t live_bytes = 0, freed_bytes = 0;  // of the heap: then, and of that not live at the end
  Heap heap = Heap::as_before;

  [[nodiscard]] const ProcessView& process() const { return before.processes.front(); }
};

// Nothing where neither its heap nor its RSS fell up to its end, or that fall took longer than a second and an eighth
// of its life (a second, where snapshots alone show it), or the process was killed, or is not shown to its end.
// `process` is one of `view`'s; `view_until` is to show it alone until an earlier moment.
std::shared_ptr<const FinalFrees> final_frees_of(const View& view, const ProcessView& process,
                                                 const std::function<View(double)>& view_until);

// Whether it held its heap to the end; `process.final_frees` has its figures of before.
bool held_heap(const ProcessView& process);

// Whether half of `gone_bytes`, which are of a cause and not there at the end, were there for the last second and the
// last eighth of the process's life before `final_frees`: not what it works with at a time.
bool was_held(const ProcessView& process, const FinalFrees& final_frees, Cause cause, std::int64_t gone_bytes);

}  // namespace whyrss
