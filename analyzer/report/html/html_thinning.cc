#include "report/html/html_thinning.h"

#include <algorithm>
#include <array>
#include <set>

#include "model/cause.h"
#include "report/view/series.h"

namespace whyrss {
namespace {

constexpr std::size_t kKeptOfStretch = 3;  // smallest, largest, last

struct Most {
  std::int64_t bytes = -1;
  std::uint32_t at = 0;
  void see(std::int64_t value, std::uint32_t where) {  // of equal ones the first, as a View takes it
    if (value > bytes) *this = {value, where};
  }
};

// Where it had most, and where each of its causes had.
std::vector<std::uint32_t> peaks(const ProcessAccount& process) {
  Most rss;
  std::array<Most, kCauseCount> causes;
  for (std::uint32_t i = 0; i < process.accounts.size(); ++i) {
    const Account& account = process.accounts[i];
    rss.see(account.rss_bytes, i);
    for (std::size_t cause = 0; cause < kCauseCount; ++cause)
      causes.at(cause).see(account.slices.sum_of(static_cast<Cause>(cause)).bytes, i);
  }
  std::vector<std::uint32_t> found{rss.at};
  for (const Most& most : causes)
    if (most.bytes > 0) found.push_back(most.at);
  return found;
}

}  // namespace

std::size_t share_of_each(std::vector<std::size_t> counts, std::size_t most) {
  std::ranges::sort(counts);
  std::size_t left = most;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t share = left / (counts.size() - i);
    if (counts[i] > share) return share;
    left -= counts[i];
  }
  return most;
}

std::vector<std::uint32_t> thinned(std::size_t count, std::size_t most,
                                   const std::function<std::int64_t(std::size_t)>& value,
                                   const std::vector<std::uint32_t>& wanted) {
  std::set<std::uint32_t> kept;
  const std::size_t stretches = std::max<std::size_t>(count <= most ? count : most / kKeptOfStretch, 1);
  for (std::size_t i = 0; count > 0 && i < stretches; ++i) {
    const auto begin = static_cast<std::uint32_t>(i * count / stretches);
    const auto end = static_cast<std::uint32_t>((i + 1) * count / stretches);
    if (begin == end) continue;
    std::uint32_t least = begin, largest = begin;
    for (std::uint32_t at = begin; at < end; ++at) {
      if (value(at) < value(least)) least = at;
      if (value(at) > value(largest)) largest = at;
    }
    kept.insert({least, largest, end - 1});
  }
  if (count > 0) kept.insert(0);
  kept.insert(wanted.begin(), wanted.end());
  return {kept.begin(), kept.end()};
}

std::vector<std::uint32_t> shown_snapshots(const ProcessAccount& process, std::size_t most) {
  const auto& accounts = process.accounts;
  const auto rss = [&](std::size_t i) { return accounts[i].rss_bytes; };
  if (accounts.size() <= most) return thinned(accounts.size(), accounts.size(), rss);
  std::vector<std::uint32_t> wanted = peaks(process);
  if (process.teardown_s)
    if (const Account* last = last_at(accounts, *process.teardown_s))
      wanted.push_back(static_cast<std::uint32_t>(last - accounts.data()));
  return thinned(accounts.size(), most, rss, wanted);
}

}  // namespace whyrss
