// A userfaultfd handed over by another process, and what protecting its shared pages tells. Skipped where the kernel or
// the sandbox has none.
#include "collect/loop/write_tracker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "collect/loop/uffd_handoff.h"
#include "collect/read/page_runs.h"
#include "collect/read/page_walk.h"
#include "collect/start/capabilities.h"
#include "file_tree.h"
#include "procfs/page_scan.h"

namespace whyrss::write_tracker_test {
namespace {

constexpr std::size_t kPages = 64;

bool is_possible() {
  for (const Capability& capability : probe_capabilities())
    if (capability.name == "write_tracking") return capability.works;
  return false;
}

Fd connect_to(const std::string& path) {
  Fd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return Fd();
  return connection;
}

// As the shim does it, but for the size of the message and the number of descriptors.
bool send(const Fd& connection, std::size_t bytes, const std::vector<int>& descriptors) {
  std::array<std::uint64_t, 4> words{7};
  iovec part{.iov_base = words.data(), .iov_len = bytes};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  return sendmsg(connection.get(), &message, MSG_NOSIGNAL) >= 0;
}

Fd new_userfaultfd() {
  return Fd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

// A child that has forked pages from us, has handed its userfaultfd over and stands still.
class SharingChild {
 public:
  SharingChild(const std::string& socket, void (*work)()) {
    pid_ = fork();
    if (pid_ == 0) {
      work();
      const Fd memory = new_userfaultfd();
      if (!send(connect_to(socket), sizeof(std::uint64_t), {memory.get()})) _exit(1);
      while (true) pause();
    }
  }
  SharingChild(const SharingChild&) = delete;
  SharingChild& operator=(const SharingChild&) = delete;
  ~SharingChild() { end(); }
  void end() {
    if (ended_) return;
    ended_ = true;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  bool ended_ = false;
};

std::vector<UffdHandoff> wait_and_take(HandoverSocket& socket) {
  for (int round = 0; round < 1000; ++round) {
    pollfd entry{.fd = socket.fd(), .events = POLLIN, .revents = 0};
    poll(&entry, 1, 10);
    if (auto handoff = socket.take(); !handoff.empty()) return handoff;
  }
  return {};
}

std::vector<std::uint64_t> entries_of(pid_t pid, const void* pages) {
  const Fd pagemap(open(("/proc/" + std::to_string(pid) + "/pagemap").c_str(), O_RDONLY | O_CLOEXEC));
  std::vector<std::uint64_t> entries(kPages);
  const std::size_t bytes = entries.size() * sizeof entries[0];
  const auto offset = static_cast<off_t>(reinterpret_cast<std::uint64_t>(pages) / kPageBytes * sizeof entries[0]);
  if (pread(pagemap.get(), entries.data(), bytes, offset) != static_cast<ssize_t>(bytes)) return {};
  return entries;
}

struct Protection {
  std::optional<std::vector<trace::PageRun>> runs;
  std::uint64_t tracked_pages = 0;  // that the walk told as unwritten
};

Protection protect(const WriteTracker& tracker, pid_t pid) {
  WriteTracker::Pass pass = tracker.pass(WriteTracker::Huge::mark);
  BackingResolver resolver;
  const auto walk =
      walk_pages(pid, trace::WalkTrigger::fork, probe_walk_methods(), resolver, {}, Relatives::possible, &pass);
  EXPECT_TRUE(walk);
  Protection protection{.runs = pass.take_runs()};
  for (const WalkedVma& vma : walk->vmas)
    for (const trace::WalkRun& run : vma.runs)
      if ((run.bits & trace::PageBits::write_tracked) != 0) protection.tracked_pages += run.page_count;
  return protection;
}

// However they are cut into runs.
std::uint64_t page_count(const std::vector<trace::PageRun>& runs) {
  std::uint64_t pages = 0;
  for (const trace::PageRun& run : runs) pages += run.page_count;
  return pages;
}

bool covers(const std::vector<trace::PageRun>& runs, const char* page) {
  const auto address = reinterpret_cast<std::uint64_t>(page);
  return std::ranges::any_of(
      runs, [&](const auto& run) { return run.start <= address && address < run.start + run.page_count * kPageBytes; });
}

char* g_pages = nullptr;

char* map_written() {
  void* pages = mmap(nullptr, kPages * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(pages, kPages * kPageBytes, MADV_NOHUGEPAGE);
  std::memset(pages, 1, kPages * kPageBytes);
  return static_cast<char*>(pages);
}

TEST(WriteTracker, ProtectsWhatIsSharedAndTellsWhatWasWritten) {
  if (!is_possible()) GTEST_SKIP() << "no userfaultfd with WP_ASYNC here";
  const FileTree folder;
  auto socket = HandoverSocket::open(folder.path() + "/pool", folder.path());
  ASSERT_TRUE(socket) << socket.error();
  g_pages = map_written();
  SharingChild child(folder.path() + "/pool.memory", [] {
    g_pages[0] = 2;  // its own copy
    munmap(g_pages + 8 * kPageBytes, kPageBytes);
  });
  auto handoff = wait_and_take(*socket);
  ASSERT_EQ(handoff.size(), 1U);
  EXPECT_EQ(handoff[0].pid, child.pid());
  EXPECT_EQ(handoff[0].start_ticks, 7U);
  const auto tracker = WriteTracker::adopt(std::move(handoff[0].descriptor));
  ASSERT_TRUE(tracker);
  const auto [runs, tracked_pages] = protect(*tracker, child.pid());
  ASSERT_TRUE(runs);
  EXPECT_EQ(tracked_pages, 0U);  // until now nobody would have told of a write
  const std::vector<std::uint64_t> entries = entries_of(child.pid(), g_pages);
  ASSERT_EQ(entries.size(), kPages);
  for (std::size_t page = 0; page < kPages; ++page) {
    const bool shared = page != 0 && page != 8;
    EXPECT_EQ(covers(*runs, g_pages + page * kPageBytes), shared) << page;
    EXPECT_EQ((entries[page] & PagemapBit::write_protected) != 0, shared) << page;
  }
  const Protection again = protect(*tracker, child.pid());
  const std::uint64_t protected_pages = page_count(*runs);
  // Pages of ours that we wrote to meanwhile are the child's alone.
  EXPECT_LE(page_count(*again.runs), protected_pages);
  for (std::size_t page = 0; page < kPages; ++page)
    EXPECT_EQ(covers(*again.runs, g_pages + page * kPageBytes), page != 0 && page != 8) << page;
  EXPECT_EQ(again.tracked_pages, protected_pages);
  // Ours are not touched, and a copy that we make leaves the child's page protected.
  EXPECT_EQ(entries_of(getpid(), g_pages)[1] & PagemapBit::write_protected, 0U);
  g_pages[kPageBytes] = 3;
  EXPECT_EQ(entries_of(child.pid(), g_pages)[1] & (PagemapBit::write_protected | PagemapBit::exclusive),
            PagemapBit::write_protected | PagemapBit::exclusive);
  child.end();
  const SharingChild other(folder.path() + "/pool.memory", [] {});
  EXPECT_FALSE(protect(*tracker, other.pid()).runs);
  munmap(g_pages, kPages * kPageBytes);
}

TEST(WriteTracker, LeavesTheProgramsOwnUserfaultfdAlone) {
  if (!is_possible()) GTEST_SKIP() << "no userfaultfd with WP_ASYNC here";
  const FileTree folder;
  auto socket = HandoverSocket::open(folder.path() + "/pool", folder.path());
  ASSERT_TRUE(socket) << socket.error();
  g_pages = map_written();
  SharingChild child(folder.path() + "/pool.memory", [] {
    const int own = new_userfaultfd().release();  // stays open
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    uffdio_register all{.range = {.start = reinterpret_cast<std::uint64_t>(g_pages), .len = kPages * kPageBytes},
                        .mode = UFFDIO_REGISTER_MODE_MISSING,
                        .ioctls = 0};
    if (ioctl(own, UFFDIO_API, &api) != 0 || ioctl(own, UFFDIO_REGISTER, &all) != 0) _exit(1);
  });
  auto handoff = wait_and_take(*socket);
  ASSERT_EQ(handoff.size(), 1U);
  const auto tracker = WriteTracker::adopt(std::move(handoff[0].descriptor));
  ASSERT_TRUE(tracker);
  const auto runs = protect(*tracker, child.pid()).runs;
  ASSERT_TRUE(runs);
  EXPECT_FALSE(covers(*runs, g_pages));
  EXPECT_FALSE(runs->empty());  // but its other memory is protected
  for (const std::uint64_t entry : entries_of(child.pid(), g_pages)) EXPECT_EQ(entry & PagemapBit::write_protected, 0U);
  munmap(g_pages, kPages * kPageBytes);
}

TEST(WriteTracker, AdoptsNothingElse) {
  EXPECT_FALSE(WriteTracker::adopt(Fd(open("/dev/null", O_RDWR | O_CLOEXEC))));
  EXPECT_FALSE(WriteTracker::adopt(Fd()));
}

TEST(HandoverSocket, DropsWhatIsNoHandoverAndKeepsNoDescriptor) {
  const FileTree folder;
  auto socket = HandoverSocket::open(folder.path() + "/pool", folder.path());
  ASSERT_TRUE(socket) << socket.error();
  const std::string path = folder.path() + "/pool.memory";
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::size_t before = open_descriptors();
  EXPECT_TRUE(send(connect_to(path), sizeof(std::uint64_t), {}));
  EXPECT_TRUE(send(connect_to(path), 3, {null.get()}));
  EXPECT_TRUE(send(connect_to(path), 4 * sizeof(std::uint64_t), {null.get(), null.get(), null.get()}));
  connect_to(path).reset();
  EXPECT_TRUE(socket->take().empty());
  EXPECT_EQ(open_descriptors(), before);
  const Fd late = connect_to(path);
  EXPECT_TRUE(socket->take().empty());
  EXPECT_TRUE(send(late, sizeof(std::uint64_t), {null.get()}));
  EXPECT_EQ(socket->take().size(), 1U);
  EXPECT_EQ(open_descriptors(), before + 1);  // `late`
}

TEST(HandoverSocket, RemovesThoseOfDeadSessionsAlone) {
  const FileTree folder;
  const std::string session = folder.path() + "/whyrss.0123456789abcdef0123456789abcdef";
  const auto living = HandoverSocket::open(folder.path() + "/whyrss.ffffffffffffffffffffffffffffffff", folder.path());
  ASSERT_TRUE(living) << living.error();
  const auto other = HandoverSocket::open(folder.path() + "/other", folder.path());
  ASSERT_TRUE(other) << other.error();
  {
    auto dead = HandoverSocket::open(session, folder.path());
    ASSERT_TRUE(dead) << dead.error();
    std::filesystem::create_hard_link(session + ".memory", session + ".kept");  // the first name goes with its owner
  }
  std::filesystem::rename(session + ".kept", session + ".memory");
  std::ofstream(session) << "a pool, which a report still wants";
  constexpr std::int64_t kHourS = 3600;
  remove_dead_sockets(*Folder::open(folder.path()), kHourS);
  EXPECT_TRUE(std::filesystem::exists(session + ".memory"));  // somebody may be about to listen there
  remove_dead_sockets(*Folder::open(folder.path()), 0);
  EXPECT_FALSE(std::filesystem::exists(session + ".memory"));
  EXPECT_TRUE(std::filesystem::exists(session));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/whyrss.ffffffffffffffffffffffffffffffff.memory"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/other.memory"));
}

TEST(HandoverSocket, LiesWhereItsNameFits) {
  const FileTree folder;
  const std::string long_name(120, 'x');
  {
    const auto socket = HandoverSocket::open("/proc/1/fd/" + long_name, folder.path());
    ASSERT_TRUE(socket) << socket.error();
    EXPECT_TRUE(std::filesystem::is_socket(folder.path() + "/memory"));
    EXPECT_EQ(std::filesystem::status(folder.path() + "/memory").permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/memory"));
  EXPECT_FALSE(HandoverSocket::open("/" + long_name, "/" + long_name));
}

}  // namespace
}  // namespace whyrss::write_tracker_test
