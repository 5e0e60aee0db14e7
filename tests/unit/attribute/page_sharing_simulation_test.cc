// Who copied, over thousands of random schedules: the pages of a family are simulated, so that each copy is known, and
// walks come at any moment. Where a schedule has too few walks nobody can know; the bounds are what is met, rounded up.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "attribute/page_sharing.h"

namespace whyrss::page_sharing_simulation_test {
namespace {

using Member = PageSharing::Member;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr int kPages = 64;
std::uint64_t page(int number) { return kBase + static_cast<std::uint64_t>(number) * kPage; }

// What the kernel does: frames with the processes that map them, and write protection. Frees nothing.
class SimulatedFamily {
 public:
  SimulatedFamily() {
    processes_.emplace_back();
    sharing_.add(std::nullopt, 0);
    for (int at = 0; at < kPages; ++at) map(0, at, next_frame_++);
  }

  Member fork(Member parent, double time_s) {
    const auto child = static_cast<Member>(processes_.size());
    processes_.emplace_back();
    for (int at = 0; at < kPages; ++at) map(child, at, processes_[parent].frames.at(at));
    EXPECT_EQ(sharing_.add(parent, time_s), child);
    sharing_.share(child, page(0), page(kPages), time_s);
    return child;
  }

  void write(Member member, int from, int to) {
    Process& process = processes_[member];
    for (int at = from; at < to; ++at) {
      process.faults += process.marked.erase(at);
      std::set<Member>& holders = mapped_by_[process.frames.at(at)];
      if (holders.size() == 1) continue;
      ++process.faults;
      ++process.copied;
      holders.erase(member);
      map(member, at, next_frame_++);
    }
  }

  void end(Member member, double time_s) {
    for (const auto& [at, frame] : processes_[member].frames) mapped_by_[frame].erase(member);
    processes_[member].ended = true;
    sharing_.leave(member, time_s);
  }

  // Walks at `members` in one moment; then their writes are tracked, as the collector does it.
  void walk(const std::vector<Member>& members, double time_s, bool mark = true) {
    std::vector<std::vector<AnonymousRun>> runs;
    for (const Member member : members) runs.push_back(runs_of(member));
    std::vector<PageSharing::Walk> walks;
    for (std::size_t i = 0; i < members.size(); ++i) {
      Process& process = processes_[members[i]];
      walks.push_back({.member = members[i],
                       .runs = &runs[i],
                       .most_copies = process.faults - process.faults_at_walk,
                       .wrote_s = time_s,
                       .walked_s = time_s});
      process.faults_at_walk = process.faults;
    }
    const auto transitions = sharing_.observe(walks, time_s);
    for (std::size_t member = 0; member < transitions.size(); ++member)
      for (const TransitionRange& range : transitions[member])
        if (range.transition == PageTransition::copied)
          processes_[member].reported += static_cast<std::int64_t>((range.end - range.start) / kPage);
    for (const Member member : members) {
      if (!mark) continue;
      for (int at = 0; at < kPages; ++at) processes_[member].marked.insert(at);
      sharing_.mark(member, page(0), page(kPages));
    }
  }

  [[nodiscard]] std::vector<Member> alive() const {
    std::vector<Member> members;
    for (Member member = 0; member < processes_.size(); ++member)
      if (!processes_[member].ended) members.push_back(member);
    return members;
  }
  [[nodiscard]] Member size() const { return static_cast<Member>(processes_.size()); }
  [[nodiscard]] std::int64_t copied(Member member) const { return processes_[member].copied; }
  [[nodiscard]] std::int64_t reported(Member member) const { return processes_[member].reported; }

 private:
  struct Process {
    std::map<int, int> frames;  // by page
    std::set<int> marked;
    std::uint64_t faults = 0, faults_at_walk = 0;
    std::int64_t copied = 0, reported = 0;  // pages
    bool ended = false;
  };

  void map(Member member, int at, int frame) {
    processes_[member].frames[at] = frame;
    mapped_by_[frame].insert(member);
  }

  std::vector<AnonymousRun> runs_of(Member member) {
    std::vector<AnonymousRun> runs;
    for (const auto& [at, frame] : processes_[member].frames) {
      const bool exclusive = mapped_by_[frame].size() == 1, marked = processes_[member].marked.contains(at);
      if (runs.empty() || runs.back().exclusive != exclusive || runs.back().marked != marked)
        runs.push_back({.start = page(at), .exclusive = exclusive, .resident = true, .marked = marked});
      runs.back().end = page(at + 1);
    }
    return runs;
  }

  PageSharing sharing_{kPage};
  std::vector<Process> processes_;
  std::map<int, std::set<Member>> mapped_by_;  // by frame
  int next_frame_ = 0;
};

// A family, its clock, and a collector that comes when it likes.
struct Schedule {
  explicit Schedule(unsigned seed) : random(seed), walk_chance(between(0.02, 0.4)) {}
  double between(double least, double most) { return std::uniform_real_distribution<>(least, most)(random); }
  bool chance(double probability) { return between(0, 1) < probability; }
  int page_before(int end) { return std::uniform_int_distribution<>(0, end - 1)(random); }

  void pass() {
    now_s += 0.001;
    if (!chance(walk_chance)) return;
    std::vector<Member> members = family.alive();
    std::erase_if(members, [&](Member) { return chance(0.4); });
    std::ranges::shuffle(members, random);
    if (!members.empty()) family.walk(members, now_s, chance(0.8));
  }

  void end(Member member, double walked_before) {
    now_s += 0.0001;
    if (chance(walked_before)) family.walk({member}, now_s);
    family.end(member, now_s);
  }

  std::mt19937 random;
  double walk_chance;
  SimulatedFamily family;
  double now_s = 1;
};

// A root forks many short children and writes once among them; one long child writes at last. Whether all is as it was.
bool judges_a_storm(unsigned seed) {
  Schedule schedule(seed);
  SimulatedFamily& family = schedule.family;
  schedule.pass();
  const Member writer = family.fork(0, schedule.now_s);
  for (int i = 0; i < 12; ++i) {
    schedule.pass();
    const Member child = family.fork(0, schedule.now_s);
    schedule.pass();
    schedule.end(child, 0.5);
    if (i == 6) family.write(0, 0, 16);
  }
  for (int i = 0; i < 10; ++i) schedule.pass();
  for (int at = 32; at < 64; at += 8) {
    family.write(writer, at, at + 8);
    schedule.pass();
  }
  schedule.end(writer, 1);
  schedule.pass();
  family.walk({0}, schedule.now_s);
  return family.reported(0) == family.copied(0) && family.reported(writer) == family.copied(writer);
}

// Two workers at a time, each for a while; their parent writes all the time, some workers do as well.
void run_pool(unsigned seed, std::int64_t& copied, std::int64_t& wrong, std::int64_t& workers_blamed) {
  Schedule schedule(seed);
  SimulatedFamily& family = schedule.family;
  const double parent_writes = schedule.between(0.01, 0.3), worker_writes = schedule.chance(0.5) ? 0 : 0.05;
  std::vector<Member> workers;
  for (int i = 0; i < 100; ++i) {
    if (workers.size() < 2) workers.push_back(family.fork(0, schedule.now_s));
    schedule.pass();
    if (const Member worker = workers.front(); schedule.chance(0.03)) {
      schedule.end(worker, 0.8);
      std::erase(workers, worker);
      continue;
    }
    if (const int at = schedule.page_before(kPages - 8); schedule.chance(parent_writes)) family.write(0, at, at + 8);
    if (const int at = schedule.page_before(kPages - 4); schedule.chance(worker_writes))
      family.write(workers.back(), at, at + 4);
  }
  for (const Member worker : workers) schedule.end(worker, 1);
  family.walk({0}, schedule.now_s);
  for (Member member = 0; member < family.size(); ++member) {
    const std::int64_t off = family.reported(member) - family.copied(member);
    copied += family.copied(member);
    wrong += std::abs(off);
    if (member != 0) workers_blamed += std::max<std::int64_t>(off, 0);
  }
}

TEST(PageSharingSimulation, AStormOfShortChildren) {
  int wrong = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) wrong += judges_a_storm(seed) ? 0 : 1;
  EXPECT_LE(wrong, 8);
}

TEST(PageSharingSimulation, APoolWhoseWorkersComeAndGo) {
  std::int64_t copied = 0, wrong = 0, workers_blamed = 0;
  for (unsigned seed = 0; seed < 1000; ++seed) run_pool(seed, copied, wrong, workers_blamed);
  EXPECT_LE(wrong, copied / 12) << copied;
  EXPECT_LE(workers_blamed, copied / 50) << copied;
}

}  // namespace
}  // namespace whyrss::page_sharing_simulation_test
