#include "report/html/html_sites.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "report/html/html_series.h"

namespace whyrss {
namespace {

struct SiteHash {
  std::size_t operator()(const Site& site) const {
    const std::size_t rest = (static_cast<std::size_t>(site.stack) << 6) ^ (static_cast<std::size_t>(site.cause) << 1) ^
                             static_cast<std::size_t>(site.in_large_block);
    return std::hash<std::string>{}(site.mapping) ^ (rest * 0x9e3779b97f4a7c15U);
  }
};

// Who touched, or gave up, a part of a site.
enum class ShareKind : int { touched = 0, touched_by_kernel = 1, given_up = 2 };

struct ShareKey {
  std::size_t site = 0;
  StackId stack = kEmptyStack;
  ShareKind kind = ShareKind::touched;
  friend auto operator<=>(const ShareKey&, const ShareKey&) = default;
};

struct ShareRow {
  ShareKey key;
  HtmlSeries series{};
};

struct SiteRow {
  std::size_t process = 0;
  Site site;
  HtmlSeries series{};
  bool is_kept = false;
  std::size_t number = 0;  // of those that are kept
};

// Rows by key, of which only those that hold something are walked when a snapshot ends.
template <typename Row>
class OpenRows {
 public:
  void opened(Row& row) { open_.push_back(&row); }
  void close(std::uint32_t at) {
    std::erase_if(open_, [at](Row* row) {
      row->series.close(at);
      return row->series.is_empty();
    });
  }

 private:
  std::vector<Row*> open_;
};

class SiteTable {
 public:
  SiteTable(const RecordingAccount& recording, const std::vector<std::vector<std::uint32_t>>& shown)
      : recording_(&recording), shown_(&shown) {
    for (std::size_t process = 0; process < recording.processes.size(); ++process) read_sites(process);
  }

  void keep_largest(const HtmlBounds& bounds, HtmlStacks& stacks, HtmlSitesLeftOut& left_out);
  void read_shares();
  void write(HtmlStacks& stacks, HtmlStrings& strings, HtmlColumns& columns) const;
  void write_shares(const HtmlBounds& bounds, HtmlStacks& stacks, HtmlColumns& columns, HtmlSitesLeftOut& left_out);

 private:
  using Rows = std::unordered_map<Site, SiteRow*, SiteHash>;

  void read_sites(std::size_t process);
  void read_shares_of(std::size_t process, const Rows& rows);
  void sum_up(const SiteRow& row);

  const RecordingAccount* recording_;
  const std::vector<std::vector<std::uint32_t>>* shown_;
  std::deque<SiteRow> rows_;
  std::vector<Rows> by_site_;  // of each process
  std::deque<ShareRow> shares_;
  // What is not kept: by process and cause, by how much it changes at which snapshot.
  std::map<std::pair<std::size_t, Cause>, std::map<std::uint32_t, std::int64_t>> others_;
  std::vector<const SiteRow*> kept_;
};

void SiteTable::read_sites(std::size_t process) {
  Rows& rows = by_site_.emplace_back();
  OpenRows<SiteRow> open;
  const auto& accounts = recording_->processes[process].accounts;
  const auto& shown = (*shown_)[process];
  for (std::uint32_t at = 0; at < shown.size(); ++at) {
    for (const Slice& slice : accounts[shown[at]].slices) {
      SiteRow*& row = rows[slice.site];
      if (row == nullptr) row = &rows_.emplace_back(SiteRow{.process = process, .site = slice.site});
      if (row->series.is_empty()) open.opened(*row);
      row->series.set(at, slice.bytes, slice.variance);
    }
    open.close(at);
  }
}

void SiteTable::sum_up(const SiteRow& row) {
  auto& changes = others_[{row.process, row.site.cause}];
  for (const HtmlSeries::Change& change : row.series.changes()) changes[change.at] += change.bytes;
}

void SiteTable::keep_largest(const HtmlBounds& bounds, HtmlStacks& stacks, HtmlSitesLeftOut& left_out) {
  std::vector<SiteRow*> ranked;
  ranked.reserve(rows_.size());
  for (SiteRow& row : rows_) ranked.push_back(&row);
  std::ranges::stable_sort(ranked, std::ranges::greater{}, [](const SiteRow* row) { return row->series.most(); });
  std::size_t kept = 0, changes = 0;
  for (SiteRow* row : ranked) {
    const std::size_t more = row->series.changes().size();
    row->is_kept = kept < bounds.sites && changes + more <= bounds.changes && stacks.node_count() < bounds.stack_nodes;
    if (row->is_kept) {
      ++kept;
      changes += more;
      static_cast<void>(stacks.number_of(row->site.stack));
      continue;
    }
    sum_up(*row);
    ++left_out.sites;
    left_out.most_bytes = std::max(left_out.most_bytes, row->series.most());
  }
  for (SiteRow& row : rows_) {
    if (!row.is_kept) continue;
    row.number = kept_.size();
    kept_.push_back(&row);
  }
}

void SiteTable::read_shares() {
  for (std::size_t process = 0; process < by_site_.size(); ++process) read_shares_of(process, by_site_[process]);
}

void SiteTable::read_shares_of(std::size_t process, const Rows& rows) {
  std::map<ShareKey, ShareRow*> known;
  OpenRows<ShareRow> open;
  const auto& accounts = recording_->processes[process].accounts;
  const auto& shown = (*shown_)[process];
  for (std::uint32_t at = 0; at < shown.size(); ++at) {
    const auto set = [&](const ShareKey& key, std::int64_t bytes, double variance) {
      ShareRow*& share = known[key];
      if (share == nullptr) share = &shares_.emplace_back(ShareRow{key});
      if (share->series.is_empty()) open.opened(*share);
      share->series.set(at, bytes, variance);
    };
    for (const Slice& slice : accounts[shown[at]].slices) {
      const SiteRow& row = *rows.at(slice.site);
      if (!row.is_kept) continue;
      for (const TouchShare& touch : slice.touched) {
        const auto kind = touch.by_kernel ? ShareKind::touched_by_kernel : ShareKind::touched;
        set({row.number, touch.stack, kind}, touch.bytes, touch.variance);
      }
      for (const AdviceShare& advice : slice.advised)
        set({row.number, advice.stack, ShareKind::given_up}, advice.bytes, 0);
    }
    open.close(at);
  }
}

// The columns that tell what a row held when.
class ChangeColumns {
 public:
  ChangeColumns(HtmlColumns& columns, std::string_view count, std::string_view at, std::string_view bytes,
                std::string_view variance)
      : count_(columns.whole(count)),
        at_(columns.whole(at)),
        bytes_(columns.whole(bytes)),
        variance_(columns.float32(variance)) {}

  void add(const HtmlSeries& series) {
    count_.add(static_cast<std::int64_t>(series.changes().size()));
    at_.begin_run();
    for (const HtmlSeries::Change& change : series.changes()) {
      add(change.at, change.bytes);
      if (series.has_variance()) variance_.add_float(change.variance);
    }
  }
  void add(const std::map<std::uint32_t, std::int64_t>& changes) {
    count_.add(static_cast<std::int64_t>(changes.size()));
    at_.begin_run();
    for (const auto& [at, bytes] : changes) add(at, bytes);
  }

 private:
  void add(std::uint32_t at, std::int64_t bytes) {
    at_.add_delta(at);
    bytes_.add(bytes);
  }

  HtmlColumn &count_, &at_, &bytes_, &variance_;
};

// Bits of the column site_flags.
constexpr std::int64_t kInLargeBlock = 1, kOtherSites = 2, kHasVariance = 4;

void SiteTable::write(HtmlStacks& stacks, HtmlStrings& strings, HtmlColumns& columns) const {
  HtmlColumn& process = columns.whole("site_process");
  HtmlColumn& cause = columns.whole("site_cause");
  HtmlColumn& stack = columns.whole("site_stack");
  HtmlColumn& mapping = columns.whole("site_mapping");  // number + 1; 0: nameless
  HtmlColumn& flags = columns.whole("site_flags");
  ChangeColumns changes(columns, "site_changes", "site_at", "site_bytes", "site_variance");
  const auto add = [&](std::size_t of_process, const Site& site, std::int64_t bits) {
    process.add_delta(static_cast<std::int64_t>(of_process));
    cause.add(static_cast<std::int64_t>(site.cause));
    stack.add_delta(static_cast<std::int64_t>(stacks.number_of(site.stack)));
    mapping.add(site.mapping.empty() ? 0 : static_cast<std::int64_t>(strings.number_of(site.mapping)) + 1);
    flags.add(bits);
  };
  for (const SiteRow* row : kept_) {
    add(row->process, row->site,
        (row->site.in_large_block ? kInLargeBlock : 0) | (row->series.has_variance() ? kHasVariance : 0));
    changes.add(row->series);
  }
  for (const auto& [key, sums] : others_) {
    add(key.first, Site{.cause = key.second}, kOtherSites);
    changes.add(sums);
  }
}

void SiteTable::write_shares(const HtmlBounds& bounds, HtmlStacks& stacks, HtmlColumns& columns,
                             HtmlSitesLeftOut& left_out) {
  std::vector<const ShareRow*> ranked;
  ranked.reserve(shares_.size());
  for (const ShareRow& row : shares_) ranked.push_back(&row);
  std::ranges::stable_sort(ranked, std::ranges::greater{}, [](const ShareRow* row) { return row->series.most(); });
  std::vector<const ShareRow*> kept;
  std::size_t changes = 0;
  for (const ShareRow* row : ranked) {
    const std::size_t more = row->series.changes().size();
    if (kept.size() >= bounds.shares || changes + more > bounds.changes / 2 ||
        stacks.node_count() >= bounds.stack_nodes) {
      ++left_out.shares;
      continue;
    }
    changes += more;
    static_cast<void>(stacks.number_of(row->key.stack));
    kept.push_back(row);
  }
  std::ranges::sort(kept, {}, [](const ShareRow* row) { return row->key; });
  HtmlColumn& site = columns.whole("share_site");
  HtmlColumn& stack = columns.whole("share_stack");
  HtmlColumn& kind = columns.whole("share_kind");
  HtmlColumn& with_variance = columns.whole("share_flags");
  ChangeColumns of_shares(columns, "share_changes", "share_at", "share_bytes", "share_variance");
  for (const ShareRow* row : kept) {
    site.add_delta(static_cast<std::int64_t>(row->key.site));
    stack.add_delta(static_cast<std::int64_t>(stacks.number_of(row->key.stack)));
    kind.add(static_cast<std::int64_t>(row->key.kind));
    with_variance.add(row->series.has_variance() ? kHasVariance : 0);
    of_shares.add(row->series);
  }
}

}  // namespace

HtmlSitesLeftOut write_sites(const RecordingAccount& recording, const std::vector<std::vector<std::uint32_t>>& shown,
                             const HtmlBounds& bounds, HtmlStacks& stacks, HtmlStrings& strings, HtmlColumns& columns) {
  HtmlSitesLeftOut left_out;
  SiteTable table(recording, shown);
  table.keep_largest(bounds, stacks, left_out);
  table.write(stacks, strings, columns);
  table.read_shares();
  table.write_shares(bounds, stacks, columns, left_out);
  return left_out;
}

}  // namespace whyrss
