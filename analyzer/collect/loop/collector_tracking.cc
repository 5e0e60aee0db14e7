// Write tracking in fork families: whose userfaultfd has come, and when whose pages are protected.
#include <algorithm>
#include <utility>

#include "collect/loop/collector.h"
#include "collect/read/process_presence.h"
#include "support/clock.h"

namespace whyrss {

using trace::WalkTrigger;

void Collector::take_uffd_handoffs() {
  if (!handover_called_ && !setup_.handover.is_receiving() && handoffs_.empty()) return;
  for (UffdHandoff& handoff : setup_.handover.take()) {
    auto tracker = WriteTracker::adopt(std::move(handoff.descriptor));
    if (!tracker || presence_of(handoff.pid, handoff.start_ticks) == Presence::gone) continue;
    handoffs_.insert_or_assign({.pid = static_cast<std::uint32_t>(handoff.pid), .start_ticks = handoff.start_ticks},
                               std::move(*tracker));
  }
  std::set<ProcessKey> came;
  for (auto handoff = handoffs_.begin(); handoff != handoffs_.end();) {
    const ProcessKey key = handoff->first;
    const auto found = followed_.find(key);
    if (found != followed_.end()) {
      found->second.process->set_write_tracker(std::move(handoff->second));
      came.insert(key);
    }
    const bool done =
        found != followed_.end() || presence_of(static_cast<pid_t>(key.pid), key.start_ticks) == Presence::gone;
    handoff = done ? handoffs_.erase(handoff) : std::next(handoff);
  }
  if (came.empty()) return;
  // One that comes too late: a child was tracked without its own, or without that of its parent.
  for (auto& [key, followed] : followed_) {
    if (followed.forked_from == ProcessKey{} || followed.track_at_ns != 0) continue;
    if (!came.contains(key) && !came.contains(followed.forked_from)) continue;
    followed.track_at_ns = monotonic_ns();
    schedule_walk(followed.family, WalkTrigger::fork);
  }
}

// A userfaultfd may still come, of the child or of whom it was forked from: one of them has had no turn yet to hand it
// over.
bool Collector::may_hand_off(const Followed& child, std::int64_t now_ns) const {
  if (now_ns - child.image_seen_ns > kHandOverNs) return false;
  const auto found = followed_.find(child.forked_from);
  const Followed* parent = found == followed_.end() || found->second.slot == trace::kNoSlot ? nullptr : &found->second;
  const auto is_waited_for = [this](const Followed& process) {
    const auto cannot = [this](ProcessKey name) { return without_uffd_handoff_.contains(name); };
    return !process.process->has_write_tracker() && !is_leaving(process) &&
           std::ranges::none_of(names_.names_of(process.process->key()), cannot);
  };
  return ((child.slot != trace::kNoSlot || parent != nullptr) && is_waited_for(child)) ||
         (parent != nullptr && is_waited_for(*parent));
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
    if (may_hand_off(*child, now_ns)) {
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

// A child that asks for a walk was not made for an exec: it is tracked before it goes on and writes, if both sides can
// be by now.
void Collector::prioritize_tracking() {
  const std::int64_t now_ns = monotonic_ns();
  const trace::PoolView pool = setup_.pool.view();
  bool prioritized = false, asked = false;
  for (auto& [key, followed] : followed_) {
    if (followed.track_at_ns <= 0 || followed.slot == trace::kNoSlot || is_leaving(followed)) continue;
    if (pool.slots[followed.slot].walk_request.load(std::memory_order_acquire) == followed.walk_served) continue;
    // It may have handed its memory over since the last wait.
    if (!std::exchange(asked, true)) {
      handover_called_ = true;
      take_uffd_handoffs();
    }
    const auto parent = followed_.find(followed.forked_from);
    if (!followed.process->has_write_tracker() || parent == followed_.end() ||
        !parent->second.process->has_write_tracker())
      continue;
    followed.track_at_ns = std::min(followed.track_at_ns, now_ns);
    due_families_[followed.family] = {.trigger = WalkTrigger::fork, .at_ns = now_ns, .since_ns = now_ns};
    prioritized = true;
  }
  if (prioritized) walk_families();
}

// The first moment at which a member is old enough; 0: none waits.
std::int64_t Collector::next_tracking(const std::vector<Followed*>& members) {
  std::int64_t next_ns = 0;
  for (const Followed* member : members)
    if (member->track_at_ns != 0 && (next_ns == 0 || member->track_at_ns < next_ns)) next_ns = member->track_at_ns;
  return next_ns;
}

}  // namespace whyrss
