// Exact mode's stream from chunks to accounts, without a traced program:
//
//   replay_bench record DIR EVENTS LIVE THREADS   writes a recording through the collector's drain, from a generator
//   replay_bench report DIR                       loads it as `whyrss report` does
//   replay_bench count DIR                        says how much any recording holds
//
// The generator behaves as programs do: some hundred call sites of few sizes each, that come in runs and in loops; 3 of
// 4 blocks that are freed are among the youngest 64; addresses come from last-in-first-out lists of freed blocks.
// Prints "name value" lines.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <vector>

#include "collect/loop/drain.h"
#include "collect/read/backing.h"
#include "collect/read/clock_reading.h"
#include "decode/process_input.h"
#include "load/load.h"
#include "recording/frame_file.h"
#include "recording/recording_folder.h"
#include "support/clock.h"
#include "unit/recording_builder.h"

namespace {

using namespace whyrss;
using namespace whyrss::testing_support;

constexpr std::uint32_t kPid = 100;
constexpr std::uint64_t kHeapStart = 0x555500000000;
constexpr std::size_t kSites = 300;
constexpr std::size_t kYoung = 64;

// The generator's time runs as the machine's does, which the collector's readings tell: (ticks - start) / rate.
double ticks_per_ns() {
  const ClockReading before = read_clocks();
  usleep(20'000);
  const ClockReading after = read_clocks();
  return static_cast<double>(after.ticks - before.ticks) / static_cast<double>(after.time_ns - before.time_ns);
}

// What malloc would return, and the program's choice of what to allocate and free.
class Program {
 public:
  explicit Program(std::size_t live) : most_live_(live) {
    for (auto& site : site_sizes_) site = static_cast<std::uint32_t>(1 + random_() % 60) * 16 + 8;
    for (auto& path : paths_)
      for (auto& site : path) site = static_cast<std::uint16_t>(random_() % kSites);
  }

  // Fills in address, size and stack; size 0: a release.
  void next(std::uint64_t& address, std::uint32_t& size, std::uint32_t& stack) {
    const bool grow = live_.size() < most_live_ ? random_() % 16 < 9 : random_() % 2 == 0;
    if (grow || live_.empty()) {
      if (step_ == paths_[path_].size()) {
        step_ = 0;
        if (random_() % 4 == 0) path_ = random_() % paths_.size();
      }
      const std::uint16_t site = paths_[path_][step_++];
      size = site_sizes_[site];
      stack = site + 1U;
      auto& free = free_[size / 16];
      if (free.empty()) {
        address = top_;
        top_ += size + 8;
      } else {
        address = free.back();
        free.pop_back();
      }
      live_.push_back({address, size});
      return;
    }
    const std::size_t reach = random_() % 4 < 3 ? std::min(live_.size(), kYoung) : live_.size();
    auto& victim = live_[live_.size() - 1 - random_() % reach];
    address = victim.address;
    free_[victim.size / 16].push_back(address);
    victim = live_.back();
    live_.pop_back();
    size = stack = 0;
  }
  [[nodiscard]] std::uint64_t top() const { return top_; }

 private:
  struct Block {
    std::uint64_t address;
    std::uint32_t size;
  };
  std::mt19937_64 random_{1};
  std::size_t most_live_;
  std::array<std::uint32_t, kSites> site_sizes_{};
  std::array<std::array<std::uint16_t, 12>, 40> paths_{};
  std::size_t path_ = 0, step_ = 0;
  std::vector<Block> live_;
  std::array<std::vector<std::uint64_t>, 64> free_;
  std::uint64_t top_ = kHeapStart + 16;
};

// One of the program's threads, as the shim writes for it.
struct Thread {
  trace::Writer writer;
  trace::Lease lease;
  std::uint64_t ticks = 0;
  bool timed = false;

  template <typename Record>
  bool write(const Record& record) {
    std::byte* to = reserve(writer, lease, sizeof record);
    if (to == nullptr) return false;
    std::memcpy(to, &record, sizeof record);
    publish(lease, sizeof record);
    return true;
  }
  bool write_event(std::uint64_t time_ns, std::uint64_t now, std::uint64_t address, std::uint32_t size,
                   std::uint32_t stack) {
    if (!timed || lease.used + sizeof(trace::CompactAllocate) > trace::kChunkBytes) {
      trace::ClockRecord clock{};
      clock.header = {.size_bytes = sizeof clock, .kind = trace::RecordKind::clock, .reserved = 0, .time_ns = time_ns};
      clock.ticks = ticks = now;
      timed = true;
      seal(lease);
      if (!write(clock)) return false;
    }
    const auto since = static_cast<std::uint32_t>(now - ticks);
    ticks = now;
    const auto high = static_cast<std::uint16_t>(address >> 32);
    const auto low = static_cast<std::uint32_t>(address);
    if (size == 0)
      return write(
          trace::CompactRelease{sizeof(trace::CompactRelease), trace::RecordKind::compact_release, high, low, since});
    return write(trace::CompactAllocate{sizeof(trace::CompactAllocate), trace::RecordKind::compact_allocate, high, low,
                                        since, size, stack});
  }
};

std::vector<ByteVector> image_records(std::uint64_t time_ns) {
  ByteVector begin = attach(time_ns, kPid, 1, trace::Born::exec);
  const auto exact = trace::Mode::exact;
  std::memcpy(begin.data() + offsetof(trace::AttachRecord, mode), &exact, sizeof exact);
  std::vector<ByteVector> records{begin, module_at(time_ns, 0x400000, 0x500000, "/usr/bin/job")};
  for (std::uint32_t site = 0; site < kSites; ++site)
    records.push_back(stack(time_ns, site + 1, {0x400000 + site * 64, 0x480000 + site % 7 * 64}));
  return records;
}

int record_one(const std::string& directory, std::uint64_t event_count, std::size_t live, std::uint32_t thread_count) {
  const std::uint64_t pool_size = trace::pool_bytes(trace::kDefaultChunkCount, 4);
  void* memory = mmap(nullptr, pool_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return 1;
  const trace::PoolView pool = trace::format_pool(memory, trace::kDefaultChunkCount, 4, kSession);
  std::filesystem::create_directories(directory);
  BackingResolver resolver;
  WriteFaults faults(directory);
  const FollowContext context{.directory = directory,
                              .host = "node",
                              .memory_group = {},
                              .session = kSession,
                              .methods = {},
                              .resolver = &resolver,
                              .faults = &faults};
  const ProcessKey key{.pid = kPid, .start_ticks = 7};
  std::optional<ProcessFollow> process(std::in_place, context, key, 0);
  Drain drain(pool);
  const double rate = ticks_per_ns();
  const ClockReading start = read_clocks();
  Manifest manifest;
  manifest.session = hex32(kSession.high, kSession.low);
  manifest.mode = "exact";
  manifest.state = "complete";
  manifest.target_pid = kPid;
  manifest.started_ns = static_cast<std::int64_t>(start.time_ns);

  std::vector<Thread> threads(thread_count);
  for (std::uint32_t i = 0; i < thread_count; ++i)
    threads[i].writer = {.pool = pool, .pid = kPid, .tid = kPid + i, .slot = 0, .start_ticks = key.start_ticks};
  for (const ByteVector& bytes : image_records(start.time_ns)) {
    std::byte* to = reserve(threads[0].writer, threads[0].lease, bytes.size());
    std::memcpy(to, bytes.data(), bytes.size());
    publish(threads[0].lease, bytes.size());
  }

  Program program(live);
  std::mt19937_64 random(2);
  std::uint64_t now = start.ticks;
  const auto time_at = [&](std::uint64_t ticks) {
    return start.time_ns + static_cast<std::uint64_t>(static_cast<double>(ticks - start.ticks) / rate);
  };
  std::int64_t drain_cpu_ns = 0;
  const auto drain_now = [&](bool everything) {
    const std::int64_t begin_ns = thread_cpu_ns();
    const auto target = [&](ProcessKey) { return &*process; };
    const auto gone = [](ProcessKey, std::uint32_t) { return false; };
    const auto now_ns = static_cast<std::int64_t>(time_at(now));
    drain.round(now_ns, {}, everything, target, gone);
    if (faults.any()) std::abort();
    drain_cpu_ns += thread_cpu_ns() - begin_ns;
  };
  std::uint32_t current = 0;
  for (std::uint64_t i = 0; i < event_count; ++i) {
    std::uint64_t address = 0;
    std::uint32_t size = 0, stack = 0;
    program.next(address, size, stack);
    now += 50 + random() % 64 + (i % 1000 == 0 ? 20'000 : 0);
    if (thread_count > 1 && random() % 8 == 0) current = static_cast<std::uint32_t>(random() % thread_count);
    if (!threads[current].write_event(time_at(now), now, address, size, stack)) std::abort();
    // 32 chunks, which is what the collector finds in a round that follows the one before at once.
    if (i % 25'000 == 24'999) drain_now(false);
  }
  for (Thread& thread : threads) seal(thread.lease);
  drain_now(true);
  ClosedProcess closed = process->close();
  process.reset();

  const std::string base = fmt::format("{}/node.{}.7", directory, kPid);
  std::filesystem::remove(base + "/pages.zst");
  FileIdentity identity{.kind = trace::FileKind::pages, .session = kSession, .pid = kPid, .start_ticks = 7};
  auto pages = FrameWriter::create(base + "/pages.zst", identity);
  const std::uint64_t end_ns = time_at(now);
  const auto heap_pages = static_cast<std::uint32_t>((program.top() - kHeapStart) / 4096 + 1);
  for (const std::uint64_t part : {1U, 2U, 3U, 4U}) {
    const TestVma heap{.start = kHeapStart,
                       .path = "[heap]",
                       .runs = {{trace::PageBits::present | trace::PageBits::exclusive, heap_pages}}};
    const ByteVector payload = walk(start.time_ns + (end_ns - start.time_ns) * part / 4 + part / 4, {heap});
    if (!pages || !pages->append(trace::FrameKind::walk, 1, payload)) return 1;
  }
  closed.pages_frames = pages->frame_count();
  manifest.processes = {closed};
  manifest.ended_ns = static_cast<std::int64_t>(end_ns + 1);
  std::ofstream(directory + "/manifest.json") << render_manifest(manifest);
  const auto stored_bytes = static_cast<double>(std::filesystem::file_size(base + "/events.zst"));
  fmt::print("collector_ns {:.2f}\nbytes {:.2f}\ndropped {}\n",
             static_cast<double>(drain_cpu_ns) / static_cast<double>(event_count),
             stored_bytes / static_cast<double>(event_count), pool.header->dropped_records.load());
  return 0;
}

int report_one(const std::string& directory) {
  const std::int64_t begin_ns = monotonic_ns(), begin_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  const auto account = load_account(directory);
  const std::int64_t cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin_cpu_ns;
  const std::int64_t wall_ns = monotonic_ns() - begin_ns;
  if (!account || account->processes.size() != 1) return 1;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("report_cpu_ns {}\nreport_wall_ns {}\npeak_kib {}\nlost {}\nwalks {}\n", cpu_ns, wall_ns, usage.ru_maxrss,
             account->info.lost_events, account->processes[0].accounts.size());
  for (const std::string& note : account->processes[0].notes) fmt::print("note {}\n", note);
  return 0;
}

int count(const std::string& directory) {
  const auto folder = open_recording(directory);
  const auto processes = folder ? list_processes(*folder) : Error{folder.error()};
  if (!processes) return 1;
  std::uint64_t events = 0;
  for (const ProcessFolder& process : *processes) {
    ProcessInput input;
    auto file = read_frame_file(*folder, process.name + "/events.zst");
    if (!file) continue;  // it was too short for one
    input.events = std::move(*file);
    input.open_events();
    events += input.stream.records().size();
    for (const StoredRun& run : input.stream.runs().all()) events += run.event_count;
  }
  const auto account = load_account(directory);
  if (!account) return 1;
  fmt::print("events {}\nstacks {}\nprocesses {}\n", events, account->stacks.stack_count() - 1, processes->size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (words.size() == 6 && words[1] == "record")
    return record_one(words[2], std::stoull(words[3]), std::stoull(words[4]),
                      static_cast<std::uint32_t>(std::stoul(words[5])));
  if (words.size() == 3 && words[1] == "report") return report_one(words[2]);
  if (words.size() == 3 && words[1] == "count") return count(words[2]);
  fmt::print(stderr, "usage: replay_bench record DIR EVENTS LIVE THREADS | report DIR | count DIR\n");
  return 2;
}
