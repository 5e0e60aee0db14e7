#include "report/view/file_pss.h"

#include <algorithm>
#include <cmath>

#include "report/view/series.h"

namespace whyrss {

FilePssBound::FilePssBound(const RecordingAccount& recording) {
  constexpr std::int64_t kLastPage = 4095;
  for (const ProcessAccount& process : recording.processes)
    for (const FileSizes& at_walk : process.file_sizes)
      for (const auto& [path, size] : at_walk.files) {
        const std::size_t number = numbers_.try_emplace(path, sizes_.size()).first->second;
        if (number == sizes_.size()) sizes_.push_back(0);
        sizes_[number] = std::max(sizes_[number], size.size_bytes + kLastPage);
      }
  mapped_.resize(sizes_.size());
}

const FilePssBound::OfFiles& FilePssBound::files_of(const Account& account) const {
  const auto [found, is_new] = walks_.try_emplace(&account);
  OfFiles& files = found->second;
  if (!is_new) return files;
  for (auto slice = account.slices.begin(); slice != SliceList::end(); ++slice) {
    if (slice->site.cause != Cause::file_cache && slice->site.cause != Cause::shared_memory) continue;
    const std::int64_t shared = slice->bytes - slice->exclusive_bytes;
    files.exclusive += slice->exclusive_bytes;
    files.shared += shared;
    if (const auto known = numbers_.find(slice.mapping()); known != numbers_.end()) {
      if (mapped_[known->second] == 0) files.known.emplace_back(known->second, 0);
      mapped_[known->second] += slice->bytes;
    } else {
      files.unknown_exclusive += slice->exclusive_bytes;
      files.unknown_shared += shared;
    }
  }
  for (auto& [number, bytes] : files.known) bytes = std::exchange(mapped_[number], 0);
  return files;
}

std::int64_t FilePssBound::most(std::span<const FilePss> parts, double time_s) const {
  double most = 0;
  std::vector<const OfFiles*> all;  // first, as `mapped_` serves both
  for (const FilePss& part : parts) {
    const Account* account = last_at(part.process->accounts, time_s);
    if (account == nullptr) {
      most += static_cast<double>(part.pss_bytes);
      continue;
    }
    // What came since that walk is in no mapping of it.
    const RssPoint *then = last_at(part.process->polls, account->time_s), *now = last_at(part.process->polls, time_s);
    if (then != nullptr) most += static_cast<double>(std::max<std::int64_t>(0, now->shared_bytes - then->shared_bytes));
    const OfFiles& files = *all.emplace_back(&files_of(*account));
    // How much of what it shares of files counts as its own.
    double weight = 0;
    if (files.shared != 0)
      weight = std::clamp(static_cast<double>(part.pss_bytes - files.exclusive) / static_cast<double>(files.shared),
                          0.0, 1.0);
    most += static_cast<double>(files.unknown_exclusive) + weight * static_cast<double>(files.unknown_shared);
  }
  std::vector<std::size_t> mapped;
  for (const OfFiles* files : all)
    for (const auto& [number, bytes] : files->known) {
      if (mapped_[number] == 0) mapped.push_back(number);
      mapped_[number] += bytes;
    }
  for (const std::size_t number : mapped)
    most += static_cast<double>(std::min(std::exchange(mapped_[number], 0), sizes_[number]));
  return std::llround(most);
}

}  // namespace whyrss
