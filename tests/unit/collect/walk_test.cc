// Page walks of real, stopped processes: the counted pages equal smaps' Rss of every VMA and statm, to
// the page, whatever the memory is made of.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "collect/read/lazy_free.h"
#include "collect/read/page_runs.h"
#include "collect/read/page_walk.h"
#include "procfs/process_stat.h"
#include "procfs/smaps.h"
#include "support/file.h"

namespace whyrss::walk_test {
namespace {

constexpr std::size_t kMiB = 1024 * 1024;

// A child that has run `work` and stands still; killed at the end.
class StoppedChild {
 public:
  explicit StoppedChild(const std::function<void()>& work) {
    pid_ = fork();
    if (pid_ == 0) {
      work();
      raise(SIGSTOP);
      _exit(0);
    }
    int status = 0;
    waitpid(pid_, &status, WUNTRACED);
    stopped_ = WIFSTOPPED(status);
  }
  StoppedChild(const StoppedChild&) = delete;
  StoppedChild& operator=(const StoppedChild&) = delete;
  ~StoppedChild() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  pid_t pid_ = 0;
  bool stopped_ = false;
};

// It lives as long as this process, which may be killed before the child asks for that.
void fork_relative() {
  const pid_t parent = getpid();
  if (fork() != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (getppid() == parent) pause();
  _exit(0);
}

std::uint64_t counted_pages(const WalkedVma& vma) {
  std::uint64_t pages = 0;
  for (const auto& run : vma.runs)
    if (is_counted(run.bits)) pages += run.page_count;
  return pages;
}

std::uint64_t pages_with(const WalkedVma& vma, std::uint32_t bits) {
  std::uint64_t pages = 0;
  for (const auto& run : vma.runs)
    if ((run.bits & bits) == bits) pages += run.page_count;
  return pages;
}

void* map(std::size_t size, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1, int prot = PROT_READ | PROT_WRITE) {
  void* address = mmap(nullptr, size, prot, flags, fd, 0);
  if (address == MAP_FAILED) _exit(9);
  return address;
}

// The three figures, and each VMA, agree; returns the walk for further checks.
PageWalk expect_exact(const StoppedChild& child, const WalkMethods& methods = probe_walk_methods()) {
  EXPECT_TRUE(child.stopped()) << "the child could not prepare its memory";
  BackingResolver resolver;
  auto walk = walk_pages(child.pid(), trace::WalkTrigger::request, methods, resolver);
  EXPECT_TRUE(walk.ok()) << (walk ? "" : walk.error());
  if (!walk) return {};
  const auto smaps = parse_smaps(*read_file(fmt::format("/proc/{}/smaps", child.pid())));
  const auto statm = parse_statm(*read_file(fmt::format("/proc/{}/statm", child.pid())));
  std::int64_t rss_bytes = 0;
  EXPECT_EQ(smaps.size(), walk->vmas.size());
  for (std::size_t i = 0; i < std::min(smaps.size(), walk->vmas.size()); ++i) {
    const WalkedVma& vma = walk->vmas[i];
    rss_bytes += smaps[i].rss_bytes;
    EXPECT_EQ(counted_pages(vma) * kPageBytes, static_cast<std::uint64_t>(smaps[i].rss_bytes))
        << fmt::format("{:x} {}", vma.vma.start, vma.path);
    std::uint64_t covered = 0;
    for (const auto& run : vma.runs) covered += run.page_count;
    EXPECT_EQ(covered * kPageBytes, vma.vma.end - vma.vma.start);
  }
  EXPECT_EQ(walk->counted_pages * kPageBytes, static_cast<std::uint64_t>(rss_bytes));
  EXPECT_EQ(walk->counted_pages, statm->resident);
  EXPECT_EQ(walk->header.flags & (trace::WalkFlags::skewed | trace::WalkFlags::partial), 0U);
  return std::move(*walk);
}

const WalkedVma* vma_at(const PageWalk& walk, const void* address) {
  for (const WalkedVma& vma : walk.vmas)
    if (vma.vma.start <= reinterpret_cast<std::uint64_t>(address) &&
        reinterpret_cast<std::uint64_t>(address) < vma.vma.end)
      return &vma;
  return nullptr;
}

// Where the child's memory lies; shared with it.
struct Places {
  void* at[8];
};
Places* shared_places() {
  return static_cast<Places*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

TEST(Walk, CountsAnonymousMemoryWithHoles) {
  Places* places = shared_places();
  const StoppedChild child([&] {
    auto* memory = static_cast<char*>(map(64 * kMiB));
    places->at[0] = memory;
    for (std::size_t at = 0; at < 64 * kMiB; at += 3 * kPageBytes) memory[at] = 1;
  });
  const PageWalk walk = expect_exact(child);
  const WalkedVma* vma = vma_at(walk, places->at[0]);
  ASSERT_NE(vma, nullptr);
  EXPECT_EQ(vma->vma.backing, trace::Backing::anonymous);
  EXPECT_GE(counted_pages(*vma), 64 * kMiB / kPageBytes / 3);
}

// Some virtual machines' kernels give a page of its own to memory that was only read.
bool kernel_has_zero_page() {
  Places* places = shared_places();
  const StoppedChild child([&] {
    auto* memory = static_cast<volatile char*>(map(kMiB));
    madvise(const_cast<char*>(memory), kMiB, MADV_NOHUGEPAGE);
    for (std::size_t at = 0; at < kMiB; at += kPageBytes) (void)memory[at];
    places->at[0] = const_cast<char*>(memory);
  });
  const PageWalk walk = expect_exact(child);
  const WalkedVma* vma = vma_at(walk, places->at[0]);
  return vma == nullptr || counted_pages(*vma) < kMiB / kPageBytes;
}

TEST(Walk, LeavesOutZeroPagesSmallAndHuge) {
  if (!kernel_has_zero_page()) GTEST_SKIP() << "this kernel has no zero page";
  Places* places = shared_places();
  const StoppedChild child([&] {
    auto* small = static_cast<volatile char*>(map(8 * kMiB));
    madvise(const_cast<char*>(small), 8 * kMiB, MADV_NOHUGEPAGE);
    for (std::size_t at = 0; at < 4 * kMiB; at += kPageBytes) (void)small[at];
    auto* huge = static_cast<char*>(map(8 * kMiB));
    madvise(huge, 8 * kMiB, MADV_HUGEPAGE);
    for (std::size_t at = 0; at < 8 * kMiB; at += kPageBytes) (void)*const_cast<volatile char*>(huge + at);
    places->at[0] = const_cast<char*>(small);
    places->at[1] = huge;
  });
  const PageWalk walk = expect_exact(child);
  std::uint64_t zeros = 0;
  for (const WalkedVma& vma : walk.vmas) zeros += pages_with(vma, trace::PageBits::zero);
  EXPECT_GE(zeros, 4 * kMiB / kPageBytes);
}

TEST(Walk, SeesHugePages) {
  Places* places = shared_places();
  const StoppedChild child([&] {
    auto* memory = static_cast<char*>(map(16 * kMiB));
    madvise(memory, 16 * kMiB, MADV_HUGEPAGE);
    std::memset(memory, 1, 16 * kMiB);
    places->at[0] = memory + 8 * kMiB;
  });
  const PageWalk walk = expect_exact(child);
  const auto smaps = parse_smaps(*read_file(fmt::format("/proc/{}/smaps", child.pid())));
  std::int64_t huge_bytes = 0;
  std::uint64_t huge_pages = 0;
  for (const auto& entry : smaps) huge_bytes += entry.anon_huge_bytes;
  for (const WalkedVma& vma : walk.vmas)
    if (vma.vma.backing == trace::Backing::anonymous) huge_pages += pages_with(vma, trace::PageBits::huge);
  EXPECT_EQ(huge_pages * kPageBytes, static_cast<std::uint64_t>(huge_bytes));
}

TEST(Walk, CountsGivenUpProtectedAndReleasedPages) {
  const StoppedChild child([] {
    auto* memory = static_cast<char*>(map(12 * kMiB));
    madvise(memory, 12 * kMiB, MADV_NOHUGEPAGE);
    std::memset(memory, 1, 12 * kMiB);
    madvise(memory, 4 * kMiB, MADV_FREE);
    mprotect(memory + 4 * kMiB, 4 * kMiB, PROT_NONE);
    madvise(memory + 8 * kMiB, 2 * kMiB, MADV_DONTNEED);
  });
  expect_exact(child);
}

TEST(LazyFree, IsReadPerMapping) {
  Places* places = shared_places();
  const StoppedChild child([&] {
    auto* memory = static_cast<char*>(map(12 * kMiB));
    madvise(memory, 12 * kMiB, MADV_NOHUGEPAGE);
    std::memset(memory, 1, 12 * kMiB);
    madvise(memory, 4 * kMiB, MADV_FREE);
    places->at[0] = memory + 11 * kMiB;
  });
  PageWalk walk = expect_exact(child);
  const auto reading = read_lazy_free(child.pid(), walk);
  ASSERT_TRUE(reading);
  EXPECT_TRUE(reading->any);
  trace::LazyFreeHeader header{};
  trace::LazyFreeMapping mapping{};
  ASSERT_EQ(reading->payload.size(), sizeof header + sizeof mapping);
  std::memcpy(&header, reading->payload.data(), sizeof header);
  std::memcpy(&mapping, reading->payload.data() + sizeof header, sizeof mapping);
  EXPECT_EQ(header.walk_end_ns, walk.header.end_ns);
  EXPECT_GE(header.read_ns, walk.header.end_ns);
  const auto inside = reinterpret_cast<std::uint64_t>(places->at[0]);
  EXPECT_TRUE(mapping.start < inside && inside < mapping.end);
  EXPECT_LE(mapping.bytes, 4 * kMiB);
  EXPECT_GE(mapping.bytes, 3 * kMiB);  // what CPUs have still in hand counts a moment later
  walk.vmas.pop_back();                // as if smaps had ended before the last mapping of the walk
  EXPECT_FALSE(read_lazy_free(child.pid(), walk));
}

TEST(LazyFree, OfAProcessThatGaveUpNothingThereIsNone) {
  const StoppedChild child([] {});
  const auto reading = read_lazy_free(child.pid(), expect_exact(child));
  ASSERT_TRUE(reading);
  EXPECT_FALSE(reading->any);
}

TEST(Walk, KnowsGuardPages) {
  constexpr int kGuardInstall = 102;  // MADV_GUARD_INSTALL, Linux 6.13
  void* probe = map(kPageBytes);
  const bool supported = madvise(probe, kPageBytes, kGuardInstall) == 0;
  munmap(probe, kPageBytes);
  if (!supported) GTEST_SKIP() << "this kernel has no MADV_GUARD_INSTALL";
  Places* places = shared_places();
  const StoppedChild child([&] {
    auto* memory = static_cast<char*>(map(4 * kMiB));
    madvise(memory, 4 * kMiB, MADV_NOHUGEPAGE);
    std::memset(memory, 1, 4 * kMiB);
    madvise(memory + kMiB, kMiB, kGuardInstall);
    places->at[0] = memory;
  });
  const PageWalk walk = expect_exact(child);
  const WalkedVma* vma = vma_at(walk, places->at[0]);
  ASSERT_NE(vma, nullptr);
  EXPECT_EQ(pages_with(*vma, trace::PageBits::guard), kMiB / kPageBytes);
  EXPECT_EQ(pages_with(*vma, trace::PageBits::swapped), 0U);
}

TEST(Walk, CountsAndNamesEveryKindOfSharedMemory) {
  Places* places = shared_places();
  const StoppedChild child([&] {
    const int memfd = memfd_create("walk", 0);
    const std::string name = fmt::format("/whyrss-walk-{}", getpid());
    const int shm = shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
    shm_unlink(name.c_str());
    const int sysv = shmget(IPC_PRIVATE, 2 * kMiB, 0600 | IPC_CREAT);
    if (ftruncate(memfd, 2 * kMiB) != 0 || ftruncate(shm, 2 * kMiB) != 0 || sysv < 0) _exit(9);
    places->at[0] = map(2 * kMiB, MAP_SHARED, memfd);
    places->at[1] = map(2 * kMiB, MAP_SHARED, shm);
    places->at[2] = shmat(sysv, nullptr, 0);
    shmctl(sysv, IPC_RMID, nullptr);
    places->at[3] = map(2 * kMiB, MAP_SHARED | MAP_ANONYMOUS);
    for (int i = 0; i < 4; ++i) std::memset(places->at[i], 1, kMiB + 4096);
    auto* copied = static_cast<char*>(map(2 * kMiB, MAP_PRIVATE, memfd));
    std::memset(copied, 2, kMiB / 2);
    (void)*const_cast<volatile char*>(copied + kMiB);
    places->at[4] = copied;
  });
  const PageWalk walk = expect_exact(child);
  for (int i = 0; i < 5; ++i) {
    const WalkedVma* vma = vma_at(walk, places->at[i]);
    ASSERT_NE(vma, nullptr);
    EXPECT_EQ(vma->vma.backing, trace::Backing::shmem) << i << " " << vma->path;
    EXPECT_GT(counted_pages(*vma), 0U) << i;
  }
  EXPECT_EQ(
      counted_pages(*vma_at(walk, places->at[4])) - pages_with(*vma_at(walk, places->at[4]), trace::PageBits::file),
      kMiB / 2 / kPageBytes);
}

TEST(Walk, CountsFilePagesAndTheirPrivateCopies) {
  char path[] = "/tmp/whyrss-walk-XXXXXX";
  const Fd file(mkstemp(path));
  ASSERT_TRUE(write_fully(file.get(), std::string(4 * kMiB, 'x')));
  Places* places = shared_places();
  const StoppedChild child([&] {
    auto* memory = static_cast<char*>(map(4 * kMiB, MAP_PRIVATE, file.get()));
    std::memset(memory, 1, kMiB);  // first: a write into a huge file mapping would unmap the rest of it
    for (std::size_t at = 0; at < 4 * kMiB; at += kPageBytes) (void)*const_cast<volatile char*>(memory + at);
    places->at[0] = memory;
  });
  const PageWalk walk = expect_exact(child);
  unlink(path);
  const WalkedVma* vma = vma_at(walk, places->at[0]);
  ASSERT_NE(vma, nullptr);
  EXPECT_EQ(pages_with(*vma, trace::PageBits::file), 3 * kMiB / kPageBytes);
  EXPECT_EQ(counted_pages(*vma), 4 * kMiB / kPageBytes);
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> runs_of(const WalkedVma& vma) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> runs;
  for (const auto& run : vma.runs) runs.emplace_back(run.bits, run.page_count);
  return runs;
}

TEST(Walk, SaysTheSameOfFilePagesThatItKnewAlready) {
  char path[] = "/var/tmp/whyrss-walk-XXXXXX";
  const Fd file(mkstemp(path));
  ASSERT_TRUE(write_fully(file.get(), std::string(8 * kMiB, 'x')));
  Places* places = shared_places();
  const StoppedChild child([&] {
    auto* memory = static_cast<char*>(map(8 * kMiB, MAP_SHARED, file.get()));
    places->at[0] = memory;
    for (std::size_t at = 0; at < 2 * kMiB; at += kPageBytes) (void)*const_cast<volatile char*>(memory + at);
    for (std::size_t at = 3 * kMiB; at < 4 * kMiB; at += 2 * kPageBytes) memory[at] = 1;
    raise(SIGSTOP);
    madvise(memory + kMiB, kMiB, MADV_DONTNEED);
    for (std::size_t at = 3 * kMiB; at < 6 * kMiB; at += kPageBytes) memory[at] = 2;
  });
  unlink(path);
  BackingResolver resolver;
  const WalkMethods methods = probe_walk_methods();
  const auto before = walk_pages(child.pid(), trace::WalkTrigger::request, methods, resolver);
  ASSERT_TRUE(before.ok()) << before.error();
  const KnownMemory known = known_memory(*before);
  const WalkedVma* file_vma = vma_at(*before, places->at[0]);
  ASSERT_NE(file_vma, nullptr);
  if (file_vma->vma.backing != trace::Backing::file) GTEST_SKIP() << "/var/tmp is no disk here";
  EXPECT_TRUE(std::ranges::any_of(known.files, [&](const KnownPages& k) { return k.start == file_vma->vma.start; }));

  kill(child.pid(), SIGCONT);
  int status = 0;
  ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  const PageWalk anew = expect_exact(child);
  const auto again = walk_pages(child.pid(), trace::WalkTrigger::growth, methods, resolver, known);
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(again->counted_pages, anew.counted_pages);
  // Of the other mappings other processes decide, from one walk to the next, whether a page is exclusive.
  const WalkedVma* known_vma = vma_at(*again, places->at[0]);
  const WalkedVma* new_vma = vma_at(anew, places->at[0]);
  ASSERT_NE(known_vma, nullptr);
  ASSERT_NE(new_vma, nullptr);
  EXPECT_EQ(runs_of(*known_vma), runs_of(*new_vma));
}

// Pages that a child shares with its parent are written to, and are its own then.
void copy_what_is_inherited() {
  for (const MapsEntry& entry : parse_maps(*read_file("/proc/self/maps"))) {
    if (entry.inode != 0 || !entry.writable || entry.shared) continue;
    for (std::uint64_t at = entry.start; at < entry.end; at += kPageBytes) {
      auto* byte = reinterpret_cast<volatile char*>(at);
      *byte = *byte;
    }
  }
}

using Runs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

// By address. Relatives write to their heaps and stacks while they are walked: there `large_alone`.
std::vector<std::pair<std::uint64_t, Runs>> own_runs(const PageWalk& walk, bool large_alone = false) {
  std::vector<std::pair<std::uint64_t, Runs>> all;
  for (const WalkedVma& vma : walk.vmas) {
    const bool large = vma.vma.end - vma.vma.start >= kMiB && vma.path != "[heap]";
    if (!is_own(vma.vma) || (large_alone && !large)) continue;
    all.push_back({vma.vma.start, {}});
    for (const trace::WalkRun& run : vma.runs) all.back().second.emplace_back(run.bits, run.page_count);
  }
  return all;
}

PageWalk walk_of(const StoppedChild& child, const KnownMemory& known, Relatives relatives) {
  BackingResolver resolver;
  auto walk = walk_pages(child.pid(), trace::WalkTrigger::growth, probe_walk_methods(), resolver, known, relatives);
  EXPECT_TRUE(walk.ok()) << (walk ? "" : walk.error());
  return walk ? std::move(*walk) : PageWalk();
}

PageWalk walk_of_lone(const StoppedChild& child, const KnownMemory& known = {}) {
  return walk_of(child, known, Relatives::none);
}

void go_on(const StoppedChild& child) {
  kill(child.pid(), SIGCONT);
  int status = 0;
  ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
}

TEST(Walk, OfALoneProcessIsWhatPagemapTells) {
  if (!probe_walk_methods().scan) GTEST_SKIP() << "no PAGEMAP_SCAN";
  const StoppedChild child([] {
    copy_what_is_inherited();
    auto* memory = static_cast<char*>(map(16 * kMiB));
    std::memset(memory, 1, 3 * kMiB);
    (void)*const_cast<volatile char*>(memory + 4 * kMiB);  // a zero page
    auto* aligned = reinterpret_cast<char*>((reinterpret_cast<std::uint64_t>(memory) + 8 * kMiB) & ~(2 * kMiB - 1));
    madvise(aligned, 4 * kMiB, MADV_HUGEPAGE);
    aligned[0] = 1;                                         // a huge page, where there are any
    (void)*const_cast<volatile char*>(aligned + 2 * kMiB);  // a huge zero page
    mprotect(memory, kMiB, PROT_READ);
    map(kMiB, MAP_SHARED | MAP_ANONYMOUS);
  });
  const PageWalk whole = expect_exact(child);
  const PageWalk lone = walk_of_lone(child);
  EXPECT_TRUE(lone.is_lone);
  EXPECT_EQ(own_runs(lone), own_runs(whole));
  EXPECT_EQ(lone.counted_pages, whole.counted_pages);
}

TEST(Walk, FindsRelativesThatNobodyKnewOf) {
  if (!probe_walk_methods().scan) GTEST_SKIP() << "no PAGEMAP_SCAN";
  const StoppedChild child([] {
    copy_what_is_inherited();
    std::memset(map(16 * kMiB), 1, 16 * kMiB);
    raise(SIGSTOP);
    fork_relative();
  });
  const PageWalk alone = walk_of_lone(child);
  ASSERT_TRUE(alone.is_lone);
  const KnownMemory known = known_memory(alone);
  EXPECT_FALSE(known.own.empty());
  go_on(child);
  const PageWalk whole = expect_exact(child);
  const PageWalk found = walk_of_lone(child, known);
  EXPECT_FALSE(found.is_lone);
  EXPECT_EQ(own_runs(found, true), own_runs(whole, true));
}

TEST(Walk, TakesWhatIsThereForUnchangedAsFarAsRssAgrees) {
  if (!probe_walk_methods().scan) GTEST_SKIP() << "no PAGEMAP_SCAN";
  const StoppedChild child([] {
    copy_what_is_inherited();
    auto* memory = static_cast<char*>(map(64 * kMiB));
    std::memset(memory, 1, 32 * kMiB);
    raise(SIGSTOP);
    std::memset(memory + 32 * kMiB, 1, 8 * kMiB);  // it grows
    raise(SIGSTOP);
    madvise(memory + 8 * kMiB, 4 * kMiB, MADV_DONTNEED);  // gives some back, and takes as much elsewhere
    std::memset(memory + 48 * kMiB, 1, 4 * kMiB);
    raise(SIGSTOP);
    mremap(memory + 16 * kMiB, 8 * kMiB, 8 * kMiB, MREMAP_MAYMOVE | MREMAP_FIXED, map(8 * kMiB));
    munmap(memory, 2 * kMiB);
  });
  KnownMemory known = known_memory(walk_of_lone(child));
  EXPECT_FALSE(known.own.empty());
  for (int step = 0; step < 3; ++step) {
    go_on(child);
    const PageWalk whole = expect_exact(child);
    const PageWalk again = walk_of_lone(child, known);
    EXPECT_TRUE(again.is_lone);
    EXPECT_EQ(own_runs(again), own_runs(whole)) << "step " << step;
    known = known_memory(again);
  }
}

TEST(Walk, OfARelativeKnowsWhatOthersMayMap) {
  if (!probe_walk_methods().scan) GTEST_SKIP() << "no PAGEMAP_SCAN";
  // Given memory that a child shares with this process, and some of its own
  auto* shared = static_cast<char*>(map(16 * kMiB));
  std::memset(shared, 1, 16 * kMiB);
  const StoppedChild child([&] {
    auto* own = static_cast<char*>(map(64 * kMiB));
    std::memset(own, 1, 16 * kMiB);
    raise(SIGSTOP);
    std::memset(own + 16 * kMiB, 1, 16 * kMiB);
    raise(SIGSTOP);
    std::memset(shared + 2 * kMiB, 2, kMiB);  // copies
    raise(SIGSTOP);
    munmap(own + 20 * kMiB, 4 * kMiB);  // what is shared lies where its own was
    mremap(shared + 8 * kMiB, 4 * kMiB, 4 * kMiB, MREMAP_MAYMOVE | MREMAP_FIXED, own + 20 * kMiB);
    raise(SIGSTOP);
    fork_relative();  // shares what was its own
  });
  KnownMemory known = known_memory(walk_of(child, {}, Relatives::possible));
  EXPECT_TRUE(known.knows_shared);
  EXPECT_GE(known.shared_pages, 16 * kMiB / kPageBytes);
  EXPECT_FALSE(known.own.empty());
  for (int step = 0; step < 5; ++step) {
    // When it, or this process, has moved memory in any way
    if (step < 4) go_on(child);
    if (step == 4) std::memset(shared + 4 * kMiB, 2, kMiB);
    // Then the next walk tells what one tells that knows nothing
    const PageWalk whole = expect_exact(child);
    const PageWalk again = walk_of(child, known, Relatives::possible);
    EXPECT_FALSE(again.is_lone);
    EXPECT_EQ(own_runs(again, true), own_runs(whole, true)) << "step " << step;
    known = known_memory(again);
  }
  munmap(shared, 16 * kMiB);
}

// What is known for wrong shows that it is used at all.
TEST(Walk, DoesNotReadLongRunsAgain) {
  if (!probe_walk_methods().scan) GTEST_SKIP() << "no PAGEMAP_SCAN";
  Places* places = shared_places();
  const StoppedChild child([&] {
    copy_what_is_inherited();
    auto* memory = static_cast<char*>(map(32 * kMiB));
    places->at[0] = memory;
    std::memset(memory, 1, 16 * kMiB);
    raise(SIGSTOP);
    madvise(memory, 16 * kPageBytes, MADV_DONTNEED);
  });
  const KnownMemory known = known_memory(walk_of_lone(child));
  go_on(child);
  const PageWalk whole = expect_exact(child);
  const PageWalk again = walk_of_lone(child, known);
  const auto missed = counted_pages(*vma_at(again, places->at[0])) - counted_pages(*vma_at(whole, places->at[0]));
  EXPECT_EQ(missed, 16U) << "so few are not worth another look";
}

TEST(Walk, LeavesOutHugetlb) {
  void* probe = mmap(nullptr, 2 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (probe == MAP_FAILED) GTEST_SKIP() << "no hugetlb pages reserved (sysctl vm.nr_hugepages)";
  munmap(probe, 2 * kMiB);
  Places* places = shared_places();
  const StoppedChild child([&] {
    places->at[0] = map(2 * kMiB, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
    std::memset(places->at[0], 1, 2 * kMiB);
  });
  const PageWalk walk = expect_exact(child);
  EXPECT_EQ(vma_at(walk, places->at[0])->vma.backing, trace::Backing::hugetlb);
  EXPECT_EQ(counted_pages(*vma_at(walk, places->at[0])), 0U);
}

TEST(Walk, SeesWhatAChildSharesAndWhatItCopied) {
  Places* places = shared_places();
  auto* memory = static_cast<char*>(map(8 * kMiB));
  madvise(memory, 8 * kMiB, MADV_NOHUGEPAGE);
  std::memset(memory, 1, 8 * kMiB);
  places->at[0] = memory;
  const StoppedChild child([&] { std::memset(memory, 2, 2 * kMiB); });
  const PageWalk walk = expect_exact(child);
  const WalkedVma* vma = vma_at(walk, places->at[0]);
  ASSERT_NE(vma, nullptr);
  std::uint64_t exclusive = 0;
  const auto first = (reinterpret_cast<std::uint64_t>(memory) - vma->vma.start) / kPageBytes;
  std::uint64_t page = 0;
  for (const auto& run : vma->runs)
    for (std::uint32_t i = 0; i < run.page_count; ++i, ++page)
      if (page >= first && page < first + 8 * kMiB / kPageBytes && (run.bits & trace::PageBits::exclusive) != 0)
        ++exclusive;
  EXPECT_EQ(exclusive, 2 * kMiB / kPageBytes);
  munmap(memory, 8 * kMiB);
}

TEST(Walk, IsExactWithoutPagemapScan) {
  const StoppedChild child([] {
    auto* memory = static_cast<volatile char*>(map(8 * kMiB));
    madvise(const_cast<char*>(memory), 8 * kMiB, MADV_NOHUGEPAGE);
    for (std::size_t at = 0; at < 4 * kMiB; at += kPageBytes) (void)memory[at];
    for (std::size_t at = 4 * kMiB; at < 8 * kMiB; at += kPageBytes) memory[at] = 1;
  });
  const PageWalk walk = expect_exact(child, {.pagemap = true, .scan = false, .scan_guards = false});
  EXPECT_NE(walk.header.flags & trace::WalkFlags::zero_pages_unknown, 0U);
}

TEST(Walk, IsExactFromSmapsAlone) {
  const StoppedChild child([] { std::memset(map(8 * kMiB), 1, 4 * kMiB); });
  const PageWalk walk = expect_exact(child, {.pagemap = false, .scan = false, .scan_guards = false});
  EXPECT_NE(walk.header.flags & trace::WalkFlags::smaps_only, 0U);
}

TEST(Walk, FindsTheFewPagesOfAHugeReservationQuickly) {
  Places* places = shared_places();
  const StoppedChild child([&] {
    auto* memory = static_cast<char*>(mmap(nullptr, std::size_t{1} << 40, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory == MAP_FAILED) _exit(9);
    madvise(memory, std::size_t{1} << 40, MADV_NOHUGEPAGE);
    for (std::size_t i = 0; i < 100; ++i) memory[i << 33] = 1;
    places->at[0] = memory;
  });
  const PageWalk walk = expect_exact(child);
  ASSERT_NE(vma_at(walk, places->at[0]), nullptr);
  EXPECT_EQ(counted_pages(*vma_at(walk, places->at[0])), 100U);
}

TEST(Walk, FailsWithOneLineForAProcessThatIsGone) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);  // a zombie: /proc/PID is still there
  BackingResolver resolver;
  const auto walk = walk_pages(pid, trace::WalkTrigger::end, probe_walk_methods(), resolver);
  EXPECT_FALSE(walk.ok());
  waitpid(pid, nullptr, 0);
  EXPECT_FALSE(walk_pages(pid, trace::WalkTrigger::end, probe_walk_methods(), resolver).ok());
}

TEST(Walk, EncodesToTheRecordedForm) {
  const StoppedChild child([] { std::memset(map(4 * kMiB), 1, kMiB); });
  const PageWalk walk = expect_exact(child);
  const auto bytes = encode_walk(walk);
  trace::WalkHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  EXPECT_EQ(header.vma_count, walk.vmas.size());
  std::size_t at = sizeof header;
  for (const WalkedVma& expected : walk.vmas) {
    ASSERT_LE(at + sizeof(trace::WalkVma), bytes.size());
    trace::WalkVma vma;
    std::memcpy(&vma, bytes.data() + at, sizeof vma);
    at += sizeof vma;
    EXPECT_EQ(vma.start, expected.vma.start);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data() + at), vma.path_bytes), expected.path);
    at += trace::padded(vma.path_bytes) + vma.run_count * sizeof(trace::WalkRun);
  }
  EXPECT_EQ(at, bytes.size());
}

}  // namespace
}  // namespace whyrss::walk_test
