#include "decode/lazy_free.h"

#include "shim/trace/recording_format.h"
#include "support/page_size.h"

namespace whyrss {
namespace {

constexpr std::uint64_t kHighest = std::uint64_t{1} << 63;  // of a program's addresses

bool is_whole_pages(const trace::LazyFreeMapping& mapping) {
  return mapping.start % kPageBytes == 0 && mapping.end % kPageBytes == 0 && mapping.bytes % kPageBytes == 0;
}

}  // namespace

std::optional<LazyFree> read_lazy_free(Bytes payload) {
  ByteReader reader(payload);
  trace::LazyFreeHeader header{};
  if (!reader.take(header)) return std::nullopt;
  LazyFree read{.walk_end_ns = header.walk_end_ns, .read_ns = header.read_ns, .sums = {}};
  std::uint64_t last_end = 0;
  while (!reader.rest().empty()) {
    trace::LazyFreeMapping mapping{};
    if (!reader.take(mapping) || !is_whole_pages(mapping) || mapping.start < last_end || mapping.end <= mapping.start ||
        mapping.end > kHighest || mapping.bytes > mapping.end - mapping.start)
      return std::nullopt;
    last_end = mapping.end;
    read.sums.push_back({mapping.start, mapping.end, static_cast<std::int64_t>(mapping.bytes)});
  }
  return read;
}

}  // namespace whyrss
