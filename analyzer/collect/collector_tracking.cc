// Write tracking in fork families: whose userfaultfd has come, and when whose pages are protected.
#include "collect/collector.h"
#include "support/clock.h"

namespace whyrss {

void Collector::take_handed_memory() {
  for (HandedMemory& handed : setup_.handover.take()) {
    const auto start_ticks = start_ticks_of(handed.pid);
    auto tracker = WriteTracker::adopt(std::move(handed.descriptor));
    if (!tracker || !start_ticks || *start_ticks != handed.start_ticks) continue;
    handed_.insert_or_assign({.pid = static_cast<std::uint32_t>(handed.pid), .start_ticks = *start_ticks},
                             std::move(*tracker));
  }
  for (auto handed = handed_.begin(); handed != handed_.end();) {
    const ProcessKey key = handed->first;
    const auto found = followed_.find(key);
    if (found != followed_.end()) found->second.process->set_write_tracker(std::move(handed->second));
    const bool done = found != followed_.end() || start_ticks_of(static_cast<pid_t>(key.pid)) != key.start_ticks;
    handed = done ? handed_.erase(handed) : std::next(handed);
  }
}

// Once for each child that lives on without an exec: it, and whom it was forked from.
std::map<Collector::Followed*, WriteTracker::Huge> Collector::take_due_tracking(const std::vector<Followed*>& members,
                                                                                std::int64_t now_ns) {
  std::map<Followed*, WriteTracker::Huge> due;
  for (Followed* child : members) {
    if (child->track_at_ns == 0 || child->track_at_ns > now_ns) continue;
    bool exec = false;
    if (!child->process->poll(now_ns, exec)) continue;
    if (exec) {
      exec_seen(*child);
      continue;
    }
    child->track_at_ns = 0;
    // It mostly ends before its parent: what is split then would have been split by the copy.
    due[child] = WriteTracker::Huge::mark;
    if (const auto parent = followed_.find(child->forked_from); parent != followed_.end())
      due.try_emplace(&parent->second, WriteTracker::Huge::leave);
  }
  return due;
}

// The first moment at which a member is old enough; 0: none waits.
std::int64_t Collector::next_tracking(const std::vector<Followed*>& members) {
  std::int64_t next_ns = 0;
  for (const Followed* member : members)
    if (member->track_at_ns != 0 && (next_ns == 0 || member->track_at_ns < next_ns)) next_ns = member->track_at_ns;
  return next_ns;
}

}  // namespace whyrss
