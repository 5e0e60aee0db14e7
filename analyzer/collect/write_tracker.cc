#include "collect/write_tracker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <span>

#include "collect/page_runs.h"
#include "procfs/page_scan.h"

namespace whyrss {
namespace {

// include/uapi/linux/userfaultfd.h of Linux 6.7; Debian 12's does not have it.
constexpr std::uint64_t kFeatureWpAsync = 1 << 15;

// The kernel holds the target's mmap lock for one call: 8 MiB of pages are some 30 us.
constexpr std::uint64_t kPagesPerStep = 2048;
constexpr std::size_t kRegionsPerStep = 512;
// Of pages that are strewn about, the rest is left: each call makes the program's CPUs flush their TLBs.
constexpr int kMostCalls = 8192;

using trace::PageRun;

std::uint64_t end_of(const PageRun& run) { return run.start + run.page_count * kPageBytes; }

void append_run(std::vector<PageRun>& runs, const PageRun& run) {
  if (!runs.empty() && end_of(runs.back()) == run.start)
    runs.back().page_count += run.page_count;
  else
    runs.push_back(run);
}

ScanRequest request_for(std::uint64_t start, std::uint64_t end, std::span<ScanRegion> regions) {
  ScanRequest request{};
  request.size_bytes = sizeof request;
  request.start = start;
  request.end = end;
  request.regions = reinterpret_cast<std::uint64_t>(regions.data());
  request.region_count = regions.size();
  request.max_pages = kPagesPerStep;
  request.category_inverted = ScanCategory::zero_page;
  request.category_mask = ScanCategory::present | ScanCategory::zero_page;
  request.return_mask = ScanCategory::present | ScanCategory::huge;
  return request;
}

// Shared pages of a mapping that lie together. Those that were protected before need no call, but go along behind one
// that does.
struct SharedPages {
  PageRun run;
  bool is_new;
};

// One pass over a process.
class Pass {
 public:
  Pass(int userfaultfd, int pagemap, bool with_huge)
      : userfaultfd_(userfaultfd), pagemap_(pagemap), with_huge_(with_huge) {}

  // False: the process has gone.
  bool take(const MapsEntry& mapping, const std::function<void()>& between) {
    std::array<ScanRegion, kRegionsPerStep> regions;
    bool registered = false;
    for (std::uint64_t at = mapping.start; at < mapping.end && calls_ < kMostCalls;) {
      ScanRequest request = request_for(at, mapping.end, regions);
      const int count = ioctl(pagemap_, kPagemapScanRequest, &request);
      if (count < 0 || request.walk_end <= at) return false;
      shared_.clear();
      for (const ScanRegion& region : std::span(regions).first(static_cast<std::size_t>(count)))
        if (!find_shared(region)) return false;
      if (!shared_.empty() && !registered) {
        if (!register_mapping(mapping)) return !gone_;
        registered = true;
      }
      if (!protect_shared()) return !gone_;
      at = request.walk_end;
      if (between) between();
    }
    return true;
  }

  // Nothing: the memory of the userfaultfd has gone, which a registration does not tell from other reasons (ENOMEM).
  std::optional<std::vector<PageRun>> take_runs() {
    if (lost_ && !any_registered_) return std::nullopt;
    return std::move(runs_);
  }

 private:
  bool find_shared(const ScanRegion& region) {
    if ((region.categories & ScanCategory::huge) != 0 && !with_huge_) return true;
    entries_.resize((region.end - region.start) / kPageBytes);
    if (!read_entries(pagemap_, region.start, entries_)) return false;
    for (std::size_t page = 0; page < entries_.size(); ++page) {
      constexpr std::uint64_t kTold = PagemapBit::present | PagemapBit::file | PagemapBit::exclusive;
      if ((entries_[page] & kTold) != PagemapBit::present) continue;
      const std::uint64_t address = region.start + page * kPageBytes;
      const bool is_new = (entries_[page] & PagemapBit::write_protected) == 0;
      if (shared_.empty() || end_of(shared_.back().run) != address || (is_new && !shared_.back().is_new))
        shared_.push_back({.run = {.start = address, .page_count = 0}, .is_new = is_new});
      ++shared_.back().run.page_count;
    }
    return true;
  }

  // EBUSY: the program uses a userfaultfd there. Again for what is ours already, which does nothing.
  bool register_mapping(const MapsEntry& mapping) {
    uffdio_register request{.range = {.start = mapping.start, .len = mapping.end - mapping.start},
                            .mode = UFFDIO_REGISTER_MODE_WP,
                            .ioctls = 0};
    const bool registered = succeeds(ioctl(userfaultfd_, UFFDIO_REGISTER, &request));
    any_registered_ = any_registered_ || registered;
    lost_ = lost_ || (!registered && errno == ENOMEM);
    return registered;
  }

  bool protect_shared() {
    for (const auto& [run, is_new] : shared_) {
      if (is_new) {
        if (calls_ == kMostCalls) continue;
        ++calls_;
        uffdio_writeprotect request{.range = {.start = run.start, .len = run.page_count * kPageBytes},
                                    .mode = UFFDIO_WRITEPROTECT_MODE_WP};
        if (!succeeds(ioctl(userfaultfd_, UFFDIO_WRITEPROTECT, &request))) return false;
      }
      append_run(runs_, run);
    }
    return true;
  }

  bool succeeds(int result) {
    gone_ = result != 0 && errno == ESRCH;
    return result == 0;
  }

  int userfaultfd_, pagemap_;
  bool with_huge_;
  bool gone_ = false, lost_ = false, any_registered_ = false;
  int calls_ = 0;
  std::vector<std::uint64_t> entries_;
  std::vector<SharedPages> shared_;
  std::vector<PageRun> runs_;
};

// Where a fork shares pages that somebody may write: private memory, of files as well.
bool may_hold_copies(const MapsEntry& mapping, pid_t pid, BackingResolver& resolver) {
  if (mapping.shared || !mapping.writable) return false;
  using trace::Backing;
  const Backing backing = resolver.classify(mapping, pid);
  return backing == Backing::anonymous || backing == Backing::file || backing == Backing::shmem;
}

}  // namespace

std::optional<WriteTracker> WriteTracker::adopt(Fd userfaultfd) {
  uffdio_api api{.api = UFFD_API, .features = kFeatureWpAsync, .ioctls = 0};
  if (ioctl(userfaultfd.get(), UFFDIO_API, &api) != 0) return std::nullopt;
  return WriteTracker(std::move(userfaultfd));
}

std::optional<std::vector<PageRun>> WriteTracker::protect_shared(pid_t pid, const WalkMethods& methods,
                                                                 BackingResolver& resolver, Huge huge) const {
  const auto maps = read_file(fmt::format("/proc/{}/maps", pid));
  const Fd pagemap(open(fmt::format("/proc/{}/pagemap", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!maps || !pagemap) return std::nullopt;
  Pass pass(userfaultfd_.get(), pagemap.get(), huge == Huge::mark);
  for (const MapsEntry& mapping : parse_maps(*maps))
    if (may_hold_copies(mapping, pid, resolver) && !pass.take(mapping, methods.between)) return std::nullopt;
  return pass.take_runs();
}

std::vector<std::byte> encode_tracked(std::int64_t begin_ns, std::int64_t end_ns, const std::vector<PageRun>& runs) {
  const trace::TrackedHeader header{.begin_ns = static_cast<std::uint64_t>(begin_ns),
                                    .end_ns = static_cast<std::uint64_t>(end_ns),
                                    .run_count = static_cast<std::uint32_t>(runs.size()),
                                    .reserved = 0};
  const auto tail = std::as_bytes(std::span(runs));
  std::vector<std::byte> payload(sizeof header + tail.size());
  std::memcpy(payload.data(), &header, sizeof header);
  if (!tail.empty()) std::memcpy(payload.data() + sizeof header, tail.data(), tail.size());
  return payload;
}

}  // namespace whyrss
