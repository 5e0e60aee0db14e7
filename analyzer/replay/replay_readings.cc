// Replay's frames that were read together with a walk: what lives on its pages, what is on huge ones, what was given up
// with MADV_FREE, which views keep buffers.
#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "decode/huge_zeros.h"
#include "decode/lazy_free.h"
#include "decode/retained_views.h"
#include "replay/replay_process.h"

namespace whyrss {

using trace::RecordKind;

// Frames of walks that were damaged are read too: later ones build on them.
void Replay::take_liveness(Process& process, std::uint64_t walk_ns, Evidence& evidence) {
  while (process.next_liveness < process.liveness_frames.size() &&
         (!process.liveness || process.liveness->walk_end_ns < walk_ns))
    process.liveness =
        process.liveness_reader.read(payload_of(process, *process.liveness_frames[process.next_liveness++]));
  if (!process.liveness || process.liveness->walk_end_ns != walk_ns) return;
  evidence.has_liveness = process.liveness->has_table;
  evidence.counts_underflowed = process.liveness->underflowed_pages > 0;
  const std::uint64_t before = std::exchange(process.underflowed_pages, process.liveness->underflowed_pages);
  process.lasting_underflowed_pages =
      std::max(process.lasting_underflowed_pages, std::min(before, process.underflowed_pages));
  evidence.live_pages = std::move(process.liveness->pages);
}

void Replay::take_huge_pages(Process& process, std::uint64_t walk_ns, Evidence& evidence) {
  for (; process.next_huge < process.huge_frames.size(); ++process.next_huge) {
    auto zeros = read_huge_zeros(process.huge_frames[process.next_huge]);
    if (zeros && zeros->walk_end_ns > walk_ns) return;
    if (!zeros || zeros->walk_end_ns < walk_ns) continue;
    evidence.has_huge = true;
    evidence.huge_stride = zeros->stride;
    evidence.huge_zeros = std::move(zeros->ranges);
  }
}

// What the program gives up between the walk, whose events were played, and a later moment.
std::vector<Range> Replay::given_up_until(const Process& process, std::uint64_t time_ns) {
  std::vector<Range> ranges;
  for (std::size_t i = process.next_record; i < process.records.size(); ++i) {
    const EventRecord& record = process.records[i];
    if (record.time_ns > time_ns || record.kind == RecordKind::attach) break;
    trace::RangeRecord range{};
    if (record.kind != RecordKind::advise || !read_record(record, range) || range.argument != MADV_FREE) continue;
    const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - range.address;
    ranges.push_back({range.address, range.address + std::min(range.size_bytes, room)});
  }
  return ranges;
}

void Replay::take_lazy_free(Process& process, std::uint64_t walk_ns, Evidence& evidence) {
  for (; process.next_lazy < process.lazy_frames.size(); ++process.next_lazy) {
    const auto read = read_lazy_free(process.lazy_frames[process.next_lazy]);
    if (read && read->walk_end_ns > walk_ns) return;
    if (!read || read->walk_end_ns < walk_ns) continue;
    evidence.lazy_free =
        find_lazy_pages(read->sums, process.space.given_up().within(0, std::numeric_limits<std::uint64_t>::max()),
                        given_up_until(process, read->read_ns), evidence);
  }
}

void Replay::take_views(Process& process, std::uint64_t walk_ns, double time_s) {
  for (; process.next_views < process.views_frames.size(); ++process.next_views) {
    const auto views = read_views(process.views_frames[process.next_views]);
    if (views && views->walk_end_ns > walk_ns) return;
    if (!views || views->walk_end_ns < walk_ns) continue;
    process.account->view_walks_s.push_back(time_s);
    sum_views(*views, process.space, process.small.live(), time_s, process.account->retained_views);
  }
}

}  // namespace whyrss
