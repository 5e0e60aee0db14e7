// Write tracking in fork families: whose userfaultfd has come, and when whose pages are protected.
#include <algorithm>
#include <utility>

#include "collect/collector.h"
#include "support/clock.h"

namespace whyrss {

using trace::WalkTrigger;

void Collector::take_handed_memory() {
  if (!handover_called_ && !setup_.handover.is_receiving() && handed_.empty()) return;
  for (HandedMemory& handed : setup_.handover.take()) {
    auto tracker = WriteTracker::adopt(std::move(handed.descriptor));
    if (!tracker || presence_of(handed.pid, handed.start_ticks) == Presence::gone) continue;
    handed_.insert_or_assign({.pid = static_cast<std::uint32_t>(handed.pid), .start_ticks = handed.start_ticks},
                             std::move(*tracker));
  }
  for (auto handed = handed_.begin(); handed != handed_.end();) {
    const ProcessKey key = handed->first;
    const auto found = followed_.find(key);
    if (found != followed_.end()) found->second.process->set_write_tracker(std::move(handed->second));
    const bool done =
        found != followed_.end() || presence_of(static_cast<pid_t>(key.pid), key.start_ticks) == Presence::gone;
    handed = done ? handed_.erase(handed) : std::next(handed);
  }
}

// Its userfaultfd may still come: it has had no turn to hand it over yet.
bool Collector::may_hand_over(const Followed& child, std::int64_t now_ns) const {
  if (child.process->has_write_tracker() || now_ns - child.image_seen_ns > kHandOverNs) return false;
  const auto parent = followed_.find(child.forked_from);
  const bool has_shim =
      child.slot != trace::kNoSlot || (parent != followed_.end() && parent->second.slot != trace::kNoSlot);
  const auto cannot = [this](ProcessKey name) { return not_handed_over_.contains(name); };
  return has_shim && std::ranges::none_of(names_.names_of(child.process->key()), cannot);
}

// Once for each child that lives on without an exec: it, and whom it was forked from.
std::map<Collector::Followed*, WriteTracker::Huge> Collector::take_due_tracking(const std::vector<Followed*>& members,
                                                                                std::int64_t now_ns) {
  std::map<Followed*, WriteTracker::Huge> due;
  for (Followed* child : members) {
    if (child->track_at_ns == 0 || child->track_at_ns > now_ns) continue;
    bool exec = false;
    if (!child->process->poll(exec)) continue;
    if (exec) {
      exec_seen(*child);
      continue;
    }
    if (may_hand_over(*child, now_ns)) {
      child->track_at_ns = now_ns + kTrackAfterNs;
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

// A child that asks for a look was not made for an exec: it is tracked before it goes on and writes, if both sides can
// be by now.
void Collector::hasten_tracking() {
  const std::int64_t now_ns = monotonic_ns();
  const trace::PoolView pool = setup_.pool.view();
  bool hastened = false, asked = false;
  for (auto& [key, followed] : followed_) {
    if (followed.track_at_ns <= 0 || followed.slot == trace::kNoSlot || is_leaving(followed)) continue;
    if (pool.slots[followed.slot].look_request.load(std::memory_order_acquire) == followed.look_served) continue;
    // It may have handed its memory over since the last wait.
    if (!std::exchange(asked, true)) {
      handover_called_ = true;
      take_handed_memory();
    }
    const auto parent = followed_.find(followed.forked_from);
    if (!followed.process->has_write_tracker() || parent == followed_.end() ||
        !parent->second.process->has_write_tracker())
      continue;
    followed.track_at_ns = std::min(followed.track_at_ns, now_ns);
    due_families_[followed.family] = {.trigger = WalkTrigger::fork, .at_ns = now_ns, .since_ns = now_ns};
    hastened = true;
  }
  if (hastened) walk_families();
}

// The first moment at which a member is old enough; 0: none waits.
std::int64_t Collector::next_tracking(const std::vector<Followed*>& members) {
  std::int64_t next_ns = 0;
  for (const Followed* member : members)
    if (member->track_at_ns != 0 && (next_ns == 0 || member->track_at_ns < next_ns)) next_ns = member->track_at_ns;
  return next_ns;
}

}  // namespace whyrss
