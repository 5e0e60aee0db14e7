// RSS, USS and PSS of a process at a moment. PSS is read at most every 0.4 s, page walks and polls come far more
// often: a reading holds while RSS stays where it was. Else the nearest walk tells what only this process maps, and the
// readings how much the rest counts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/account.h"
#include "report/view/process_times.h"
#include "report/view/view.h"

namespace whyrss {

struct MemoryFigures {
  KernelTotals totals;  // rss_bytes and pss_bytes are known, and USS <= PSS <= RSS; time_s: when it was read
  bool estimate = false;
};

// A reading comes so long after the walk that it belongs to, at most.
inline constexpr double kSameMomentS = 2;

// What a cause has of it.
std::int64_t bytes_of(const Account& account, Cause cause);
// Of its RSS, at the end of the interval.
std::int64_t last_bytes(const ProcessView& process, Cause cause);

// RSS has not moved noticeably between the two.
bool is_like(std::int64_t rss_bytes, std::int64_t other_bytes);

// Whether walks saw another part of it shared at that time than when it was read: copies move no RSS.
bool shares_otherwise(const ProcessAccount& process, const KernelTotals& read, double time_s);

// Whether its relatives have copied so much between the two times that its PSS may have moved noticeably, and nothing
// else of it: a reading of one of them says little of the other.
bool relatives_copied(const ProcessTimes& times, const ProcessAccount& process, const KernelTotals& read,
                      double time_s);

// Whether this process has forked between the two, or its parent a sibling.
bool family_grew(const ProcessTimes& times, const ProcessAccount& process, double from_s, double to_s);

// As polls tell it, or, where there are none, walks.
std::optional<std::int64_t> rss_at(const ProcessAccount& process, double time_s);

// `same_state`: no reading from beyond the end of another process, whose part of what both map counts from then on.
// Nothing where PSS was never read, or no walk tells of that time.
std::optional<MemoryFigures> figures_at(const ProcessTimes& times, const ProcessAccount& process, double time_s,
                                        bool same_state);

// UnmappedMemory counted at this process at a time, or at all that were there. Nothing where it is not known.
std::optional<std::int64_t> unmapped_at(const RecordingInfo& info, const ProcessAccount& process, double time_s);
std::optional<std::int64_t> unmapped_at(const ProcessTimes& times, double time_s);

// The files of it that are known one by one, each as a site of who made it; growth and resident: its bytes.
std::vector<SiteView> unmapped_sites(const std::vector<UnmappedMemory::File>& files);

// Of the state that a walk saw, without a reading of it.
KernelTotals estimate_at_walk(const ProcessTimes& times, const ProcessAccount& process, const Account& walk);

}  // namespace whyrss
