#include "report/file_pss.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "report/series.h"

namespace whyrss {
namespace {

using BytesOfFiles = std::map<std::string_view, std::int64_t>;

bool is_of_file(const Slice& slice) {
  return slice.site.cause == Cause::file_cache || slice.site.cause == Cause::shared_memory;
}

BytesOfFiles known_sizes(std::span<const FilePss> parts) {
  constexpr std::int64_t kLastPage = 4095;
  BytesOfFiles sizes;
  for (const FilePss& part : parts)
    for (const FileSizes& told : part.process->file_sizes)
      for (const auto& [path, size] : told.files) {
        std::int64_t& largest = sizes[path];
        largest = std::max(largest, size.size_bytes + kLastPage);
      }
  return sizes;
}

// How much of what it shares of files counts as its own.
double weight_of(const FilePss& part, const Account& account) {
  std::int64_t shared = 0, exclusive = 0;
  for (const Slice& slice : account.slices) {
    if (!is_of_file(slice)) continue;
    shared += slice.bytes - slice.exclusive_bytes;
    exclusive += slice.exclusive_bytes;
  }
  if (shared == 0) return 0;
  return std::clamp(static_cast<double>(part.pss_bytes - exclusive) / static_cast<double>(shared), 0.0, 1.0);
}

}  // namespace

std::int64_t most_file_pss(std::span<const FilePss> parts, double time_s) {
  const BytesOfFiles sizes = known_sizes(parts);
  BytesOfFiles mapped;
  double most = 0;
  for (const FilePss& part : parts) {
    const Account* account = last_at(part.process->accounts, time_s);
    if (account == nullptr) {
      most += static_cast<double>(part.pss_bytes);
      continue;
    }
    const double weight = weight_of(part, *account);
    for (const Slice& slice : account->slices) {
      if (!is_of_file(slice)) continue;
      if (sizes.contains(slice.site.mapping))
        mapped[slice.site.mapping] += slice.bytes;
      else
        most += static_cast<double>(slice.exclusive_bytes) +
                weight * static_cast<double>(slice.bytes - slice.exclusive_bytes);
    }
  }
  for (const auto& [path, bytes] : mapped) most += static_cast<double>(std::min(bytes, sizes.at(path)));
  return std::llround(most);
}

}  // namespace whyrss
