// Writes the parts of a made-up job: job_bench FOLDER PARTS PROCESSES. Each process has as many lines and moments as a
// part keeps; one rank in a thousand holds three times what the others do.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "job/part_file.h"

namespace whyrss {
namespace {

constexpr std::int64_t kMiB = 1 << 20, kLineBytes = 200 << 10;
constexpr std::size_t kLinesOfJob = 400, kOutlierEvery = 1000, kBuckets = 40;
constexpr std::array kCausesOfProcess{Cause::whyrss,        Cause::file_cache, Cause::file_cow,   Cause::fork_shared,
                                      Cause::stack,         Cause::heap_live,  Cause::heap_slack, Cause::heap_retained,
                                      Cause::heap_metadata, Cause::anonymous};

using Random = std::mt19937_64;

std::int64_t about(Random& random, std::int64_t value) {
  return value / 2 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(value));
}

std::vector<JobLine> lines_of_job() {
  std::vector<JobLine> lines;
  for (std::size_t i = 0; i < kLinesOfJob; ++i)
    lines.push_back({.text = fmt::format("module_{}.py:{} in function_{}", i % 40, i, i),
                     .file = fmt::format("/home/user/project/package/module_{}.py", i % 40),
                     .mapping = i % 10 == 1 ? fmt::format("/data/shards/train-{:05}.arrow", i) : ""});
  return lines;
}

ReducedProcess made_process(Random& random, std::size_t rank, std::size_t number) {
  ReducedProcess process{.pid = static_cast<std::int64_t>(1000 + number),
                         .parent = number == 0 ? 1 : 1000,
                         .name = "train.py",
                         .born_by_fork = number > 0,
                         .traced = true,
                         .walked = true,
                         .rank = static_cast<std::int64_t>(rank)};
  for (const Cause cause : kCausesOfProcess)
    process.causes.push_back({.cause = cause, .omitted = 5, .omitted_at_peak = 3000, .omitted_most = 900});
  const std::size_t first = random() % kLinesOfJob;
  const std::int64_t factor = number == 0 && rank % kOutlierEvery == 37 ? 3 : 1;
  for (std::size_t i = 0; i < kMostLines; ++i) {
    const auto number_of_line = static_cast<std::uint32_t>(number == 0 ? i * 3 : (first + i) % kLinesOfJob);
    CauseFigures& cause = process.causes[number_of_line % process.causes.size()];
    const std::int64_t bytes = about(random, kLineBytes) * (i == 45 ? factor * 100 : 1);
    process.lines.push_back({cause.cause, number_of_line, bytes, bytes, bytes});
    for (std::int64_t* figure : {&cause.last, &cause.peak, &cause.at_peak, &process.rss_last, &process.rss_peak})
      *figure += bytes;
  }
  std::ranges::sort(process.lines, std::greater<>(), &LineFigures::at_peak);
  MemoryMoment moment;
  for (std::size_t i = 0; i < kMostMoments; ++i) {
    moment.time_ms += about(random, 10'000);
    for (const CauseFigures& cause : process.causes)
      moment.bytes[static_cast<std::size_t>(cause.cause)] = about(random, cause.last + 2);
    process.moments.push_back(moment);
  }
  for (std::size_t i = 0; i < kBuckets; ++i)
    process.rss_by_time.add(about(random, process.rss_last), random() % 10'000);
  process.verdicts.push_back({"heap-growth", Severity::info, process.rss_last,
                              "20 MiB live Python objects (made at module_1.py:41 in function_41)"});
  return process;
}

void write_part(const std::string& folder, std::size_t number, std::size_t process_count, std::size_t parts) {
  Random random(number);
  ReducedRecording recording{.session = fmt::format("{:032x}", number),
                             .host = fmt::format("node{:05}", number),
                             .boot_id = fmt::format("{:08x}-0000-4000-8000-{:012x}", number, number),
                             .node = fmt::format("node{:05}", number),
                             .job = "4711",
                             .version = "0.1.0",
                             .started = "2026-03-01T12:00:00.000000Z",
                             .started_ns = 5'000'000'000,
                             .duration_ms = 700'000,
                             .mode = "sampled",
                             .complete = true,
                             .memory_total = 262'144 * kMiB,
                             .lines = lines_of_job()};
  for (std::size_t i = 0; i < process_count; ++i) {
    recording.processes.push_back(made_process(random, number, i));
    recording.processes.back().world_size = static_cast<std::int64_t>(parts);
  }
  PartBlock block = make_block(recording);
  const std::string head = part_head({{fmt::format("node[00000-{:05}]", parts - 1)}, {block.entry}});
  std::ofstream file(fmt::format("{}/{:06}.part", folder, number), std::ios::binary);
  file << head << block.stored;
  if (!file.flush()) std::exit(1);
}

}  // namespace
}  // namespace whyrss

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::size_t parts = std::strtoull(argv[2], nullptr, 10), processes = std::strtoull(argv[3], nullptr, 10);
  for (std::size_t i = 0; i < parts; ++i)
    whyrss::write_part(argv[1], i, processes / parts + (i < processes % parts ? 1 : 0), parts);
  return 0;
}
