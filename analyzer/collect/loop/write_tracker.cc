#include "collect/loop/write_tracker.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "collect/read/page_runs.h"

namespace whyrss {
namespace {

// include/uapi/linux/userfaultfd.h of Linux 6.7; Debian 12's does not have it.
constexpr std::uint64_t kFeatureWpAsync = 1 << 15;

// Of pages that are strewn about, the rest is left: each call makes the program's CPUs flush their TLBs.
constexpr int kMostCalls = 8192;

using trace::PageRun;
using SharedPages = WriteTracker::Pass::SharedPages;

std::uint64_t end_of(const PageRun& run) { return run.start + run.page_count * kPageBytes; }

void append_run(std::vector<PageRun>& runs, const PageRun& run) {
  if (!runs.empty() && end_of(runs.back()) == run.start)
    runs.back().page_count += run.page_count;
  else
    runs.push_back(run);
}

// Where a fork shares pages that may be written: private memory, of files as well.
bool may_hold_copies(const trace::WalkVma& vma) {
  using trace::Backing;
  if ((vma.perms & trace::VmaPerms::shared) != 0 || (vma.perms & trace::VmaPerms::write) == 0) return false;
  return vma.backing == Backing::anonymous || vma.backing == Backing::file || vma.backing == Backing::shmem;
}

void find_shared(std::uint64_t start, std::uint64_t page_bytes, std::span<const std::uint64_t> entries,
                 std::vector<SharedPages>& shared) {
  for (std::size_t index = 0; index < entries.size(); ++index) {
    constexpr std::uint64_t kReported = PagemapBit::present | PagemapBit::file | PagemapBit::exclusive;
    if ((entries[index] & kReported) != PagemapBit::present) continue;
    const std::uint64_t address = start + index * page_bytes;
    const bool is_new = (entries[index] & PagemapBit::write_protected) == 0;
    if (shared.empty() || end_of(shared.back().run) != address || (is_new && !shared.back().is_new))
      shared.push_back({.run = {.start = address, .page_count = 0}, .is_new = is_new});
    shared.back().run.page_count += page_bytes / kPageBytes;
  }
}

}  // namespace

std::optional<WriteTracker> WriteTracker::adopt(Fd userfaultfd) {
  uffdio_api api{.api = UFFD_API, .features = kFeatureWpAsync, .ioctls = 0};
  if (ioctl(userfaultfd.get(), UFFDIO_API, &api) != 0) return std::nullopt;
  return WriteTracker(std::move(userfaultfd));
}

void WriteTracker::Pass::begin(const std::vector<WalkedVma>& vmas) {
  for (const WalkedVma& walked : vmas)
    if (may_hold_copies(walked.vma))
      mappings_.push_back({.start = walked.vma.start, .end = walked.vma.end, .state = State::seen});
}

bool WriteTracker::Pass::visit(const ScanRegion& region, std::span<const std::uint64_t> entries) {
  const bool is_huge = (region.categories & ScanCategory::huge) != 0;
  if ((region.categories & ScanCategory::zero_page) != 0 || (is_huge && huge_ == Huge::leave)) return false;
  const std::uint64_t page_bytes = (region.end - region.start) / entries.size();
  bool changed = false;
  for (std::uint64_t at = region.start; at < region.end;) {
    while (next_ < mappings_.size() && mappings_[next_].end <= at) ++next_;
    if (next_ == mappings_.size() || mappings_[next_].start >= region.end) break;
    const std::uint64_t from = std::max(at, mappings_[next_].start);
    const std::uint64_t to = std::min(region.end, mappings_[next_].end);
    const auto part = entries.subspan((from - region.start) / page_bytes, (to - from) / page_bytes);
    shared_.clear();
    find_shared(from, page_bytes, part, shared_);
    changed |= protect_shared(mappings_[next_]);
    at = to;
  }
  return changed;
}

std::optional<std::vector<PageRun>> WriteTracker::Pass::take_runs() {
  if (gone_ || (lost_ && !any_registered_)) return std::nullopt;
  return std::move(runs_);
}

bool WriteTracker::Pass::protect_shared(TrackedMapping& mapping) {
  bool changed = false;
  for (const auto& [run, is_new] : shared_) {
    if (mapping.state == State::seen) mapping.state = register_mapping(mapping) ? State::registered : State::refused;
    if (mapping.state == State::refused) break;
    if (is_new) {
      if (calls_ == kMostCalls) continue;
      ++calls_;
      uffdio_writeprotect request{.range = {.start = run.start, .len = run.page_count * kPageBytes},
                                  .mode = UFFDIO_WRITEPROTECT_MODE_WP};
      if (ioctl(userfaultfd_, UFFDIO_WRITEPROTECT, &request) != 0) {
        gone_ = gone_ || errno == ESRCH;
        mapping.state = State::refused;  // unmapped since, or replaced
        break;
      }
      changed = true;
    }
    append_run(runs_, run);
  }
  return changed;
}

// EBUSY: the program uses a userfaultfd there. ENOMEM: among other reasons, that the memory has gone. Again for what is
// ours already, which does nothing.
bool WriteTracker::Pass::register_mapping(const TrackedMapping& mapping) {
  uffdio_register request{.range = {.start = mapping.start, .len = mapping.end - mapping.start},
                          .mode = UFFDIO_REGISTER_MODE_WP,
                          .ioctls = 0};
  const bool registered = ioctl(userfaultfd_, UFFDIO_REGISTER, &request) == 0;
  any_registered_ = any_registered_ || registered;
  lost_ = lost_ || (!registered && errno == ENOMEM);
  return registered;
}

std::vector<std::byte> encode_tracked(std::uint64_t time_ns, const std::vector<PageRun>& runs) {
  const trace::TrackedHeader header{
      .begin_ns = time_ns, .end_ns = time_ns, .run_count = static_cast<std::uint32_t>(runs.size()), .reserved = 0};
  const auto tail = std::as_bytes(std::span(runs));
  std::vector<std::byte> payload(sizeof header + tail.size());
  std::memcpy(payload.data(), &header, sizeof header);
  if (!tail.empty()) std::memcpy(payload.data() + sizeof header, tail.data(), tail.size());
  return payload;
}

}  // namespace whyrss
