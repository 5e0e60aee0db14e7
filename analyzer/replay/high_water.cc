#include "replay/high_water.h"

#include <algorithm>
#include <cmath>

#include "replay/not_looked_at.h"

namespace whyrss {
namespace {

// Polls and the mark count in batches per thread, and walks take a moment.
constexpr std::int64_t kPollNoiseBytes = 2 * 1024 * 1024;
constexpr double kPollNoisePart = 0.02;

// Not behind it: the largest account may be the last one, at which the process ended.
void add_companion(ProcessAccount& process, std::vector<Account>::iterator largest) {
  Account companion = *largest;
  companion.time_s = std::nextafter(largest->time_s, 0);
  companion.estimated_from_s = std::min(largest->estimated_from_s.value_or(0), companion.time_s);
  if (largest != process.accounts.begin() && !largest->estimated_from_s)
    companion.estimated_from_s = std::prev(largest)->estimated_from_s.value_or(std::prev(largest)->time_s);
  add_not_looked_at(companion, process.high_water_bytes - largest->rss_bytes);
  companion.slices.pack();
  process.accounts.insert(largest, std::move(companion));
}

// Exit handlers may have: no account shows that time.
bool was_reached_as_it_ended(const ProcessAccount& process, std::int64_t least_bytes) {
  return process.teardown_s && std::ranges::any_of(process.polls, [&](const RssPoint& poll) {
           return poll.time_s > *process.teardown_s && poll.rss_bytes >= least_bytes;
         });
}

}  // namespace

void settle_high_water(ProcessAccount& process) {
  const std::int64_t reported = process.high_water_bytes;
  for (const RssPoint& poll : process.polls)
    process.high_water_bytes = std::max(process.high_water_bytes, poll.rss_bytes);
  const auto largest = std::ranges::max_element(process.accounts, {}, &Account::rss_bytes);
  if (largest == process.accounts.end()) return;
  process.high_water_bytes = std::max(process.high_water_bytes, largest->rss_bytes);
  const auto noise =
      std::max(kPollNoiseBytes, static_cast<std::int64_t>(kPollNoisePart * static_cast<double>(reported)));
  if (reported - largest->rss_bytes > noise && !was_reached_as_it_ended(process, reported - noise))
    add_companion(process, largest);
}

}  // namespace whyrss
