#include "report/html/html_pictures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace whyrss {
namespace {

struct Picture {
  std::size_t process = 0;
  const Account* account = nullptr;
  std::size_t rank = 0;  // within its process: 0 is what matters most
};

std::vector<Picture> pictures_of(const ProcessAccount& process, std::size_t number) {
  std::vector<Picture> pictures;
  for (const Account& account : process.accounts)
    if (account.picture != nullptr) pictures.push_back({number, &account, 0});
  std::vector<Picture*> by_size;
  for (Picture& picture : pictures) by_size.push_back(&picture);
  std::ranges::sort(by_size, std::greater<>{}, [&](const Picture* picture) {
    return std::pair{picture == &pictures.back(), picture->account->rss_bytes};
  });
  for (std::size_t i = 0; i < by_size.size(); ++i) by_size[i]->rank = i;
  return pictures;
}

std::vector<Picture> kept_pictures(const RecordingAccount& recording, std::size_t most, std::size_t& left_out) {
  std::vector<Picture> all;
  for (std::size_t i = 0; i < recording.processes.size(); ++i)
    for (const Picture& picture : pictures_of(recording.processes[i], i)) all.push_back(picture);
  std::ranges::stable_sort(all, {}, &Picture::rank);
  std::size_t entries = 0;
  std::vector<Picture> kept;
  for (const Picture& picture : all) {
    entries += picture.account->picture->entries();
    if (entries > most) break;
    kept.push_back(picture);
  }
  left_out = all.size() - kept.size();
  std::ranges::sort(kept, {}, [](const Picture& picture) {
    return std::pair{picture.process, picture.account->time_s};
  });
  return kept;
}

std::int64_t pages(std::uint64_t bytes) { return static_cast<std::int64_t>(bytes / kPictureCellBytes); }

// Places are pages since the end of the one before, or since the start of the mapping.
class RunColumns {
 public:
  explicit RunColumns(HtmlColumns& columns)
      : gap_(columns.whole("run_gap")),
        pages_(columns.whole("run_pages")),
        missing_(columns.whole("run_missing")),  // of those, not resident
        cause_(columns.whole("run_cause")),
        stack_(columns.whole("run_stack")),
        live_(columns.whole("run_live")) {}  // sixteenths

  void add(const PageMapRun& run, std::uint64_t before, std::size_t stack) {
    gap_.add(pages(run.start - before));
    pages_.add(pages(run.end - run.start));
    missing_.add(pages(run.end - run.start) - static_cast<std::int64_t>(run.pages));
    cause_.add(static_cast<std::int64_t>(run.cause));
    stack_.add_delta(static_cast<std::int64_t>(stack));
    live_.add(run.live_sixteenths);
  }

 private:
  HtmlColumn &gap_, &pages_, &missing_, &cause_, &stack_, &live_;
};

class AgeColumns {
 public:
  explicit AgeColumns(HtmlColumns& columns)
      : gap_(columns.whole("age_gap")), pages_(columns.whole("age_pages")), since_(columns.whole("age_since")) {}

  void add(const PageAge& age, std::uint64_t before) {
    gap_.add(pages(age.start - before));
    pages_.add(pages(age.end - age.start));
    since_.add_delta(std::llround(age.since_s * 1e6));  // microseconds
  }

 private:
  HtmlColumn &gap_, &pages_, &since_;
};

class MappingColumns {
 public:
  MappingColumns(std::size_t most_nodes, HtmlStacks& stacks, HtmlStrings& strings, HtmlColumns& columns)
      : most_nodes_(most_nodes),
        stacks_(stacks),
        strings_(strings),
        gap_(columns.whole("mapped_gap")),  // pages since the end of the one before
        pages_(columns.whole("mapped_pages")),
        file_page_(columns.whole("mapped_file_page")),
        path_(columns.whole("mapped_path")),  // a string
        // 1: read; 2: write; 4: execute; 8: shared; from 16 on: log2 of the pages of a cell
        flags_(columns.whole("mapped_flags")),
        run_count_(columns.whole("mapped_runs")),
        age_count_(columns.whole("mapped_ages")),
        runs_(columns),
        ages_(columns) {}

  void add(const PageMapMapping& mapping, std::uint64_t before) {
    gap_.add(pages(mapping.start - before));
    pages_.add(pages(mapping.end - mapping.start));
    file_page_.add(pages(mapping.file_offset));
    path_.add(static_cast<std::int64_t>(strings_.number_of(mapping.path)));
    const int cell = std::countr_zero(mapping.cell_bytes / kPictureCellBytes);
    flags_.add((mapping.readable ? 1 : 0) | (mapping.writable ? 2 : 0) | (mapping.executable ? 4 : 0) |
               (mapping.shared ? 8 : 0) | (cell << 4));
    run_count_.add(static_cast<std::int64_t>(mapping.runs.size()));
    age_count_.add(static_cast<std::int64_t>(mapping.ages.size()));
    std::uint64_t at = mapping.start;
    for (const PageMapRun& run : mapping.runs) {
      const bool is_known = stacks_.node_count() < most_nodes_ || stacks_.has(run.stack);
      runs_.add(run, at, is_known ? stacks_.number_of(run.stack) : 0);
      at = run.end;
    }
    at = mapping.start;
    for (const PageAge& age : mapping.ages) {
      ages_.add(age, at);
      at = age.end;
    }
  }

 private:
  std::size_t most_nodes_;
  HtmlStacks& stacks_;
  HtmlStrings& strings_;
  HtmlColumn &gap_, &pages_, &file_page_, &path_, &flags_, &run_count_, &age_count_;
  RunColumns runs_;
  AgeColumns ages_;
};

}  // namespace

std::size_t write_pictures(const RecordingAccount& recording, const HtmlPictureBounds& bounds, HtmlStacks& stacks,
                           HtmlStrings& strings, HtmlColumns& columns) {
  HtmlColumn& process = columns.whole("picture_process");
  HtmlColumn& time = columns.float64("picture_time");
  HtmlColumn& mappings = columns.whole("picture_mappings");
  HtmlColumn& mappings_left_out = columns.whole("picture_mappings_left_out");
  HtmlColumn& pages_left_out = columns.whole("picture_pages_left_out");
  MappingColumns mapped(bounds.stack_nodes, stacks, strings, columns);
  std::size_t left_out = 0;
  for (const Picture& picture : kept_pictures(recording, bounds.entries, left_out)) {
    const PageMap& map = *picture.account->picture;
    process.add_delta(static_cast<std::int64_t>(picture.process));
    time.add_float(picture.account->time_s);
    mappings.add(static_cast<std::int64_t>(map.mappings.size()));
    mappings_left_out.add(static_cast<std::int64_t>(map.mappings_left_out));
    pages_left_out.add(static_cast<std::int64_t>(map.pages_left_out));
    std::uint64_t before = 0;
    for (const PageMapMapping& mapping : map.mappings) {
      mapped.add(mapping, before);
      before = mapping.end;
    }
  }
  return left_out;
}

}  // namespace whyrss
