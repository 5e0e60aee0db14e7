// Writes a small seed corpus for recording_fuzz: make_corpus DIR.
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "unit/compact_builder.h"

namespace {

using namespace whyrss::testing_support;
namespace trace = whyrss::trace;

void add_frame(ByteVector& out, trace::FrameKind kind, std::uint8_t process, const ByteVector& payload) {
  const auto size_bytes = static_cast<std::uint16_t>(payload.size());
  const auto kind_byte = static_cast<std::uint8_t>(kind);
  append(out, &kind_byte, 1);
  append(out, &process, 1);
  append(out, &size_bytes, 2);
  append(out, payload.data(), payload.size());
}

ByteVector touch_at(std::uint64_t time_ns, std::uint64_t address) {
  trace::TouchRecord fixed{};
  fixed.address = address;
  fixed.weight_faults = 7;
  fixed.stack_id = 1;
  return record(trace::RecordKind::touch, time_ns, fixed);
}

ByteVector kernel_faults_at(std::uint64_t time_ns, std::uint64_t address, std::uint64_t size_bytes) {
  trace::KernelFaultsRecord fixed{};
  fixed.address = address;
  fixed.size_bytes = size_bytes;
  fixed.faults = 2;
  fixed.weight_calls = 1;
  fixed.stack_id = 1;
  return record(trace::RecordKind::kernel_faults, time_ns, fixed);
}

ByteVector tracked_at(std::uint64_t time_ns, std::uint64_t start, std::uint64_t page_count) {
  const trace::TrackedHeader header{.begin_ns = time_ns, .end_ns = time_ns, .run_count = 1, .reserved = 0};
  const trace::PageRun run{.start = start, .page_count = page_count};
  ByteVector payload;
  append(payload, &header, sizeof header);
  append(payload, &run, sizeof run);
  return payload;
}

ByteVector huge_at(std::uint64_t walk_end_ns, std::uint64_t start) {
  const trace::HugePagesHeader header{.walk_end_ns = walk_end_ns, .stride = 2, .reserved = 0};
  const trace::HugePage page{.start = start, .zero = {0xf0f, 0, 0, 0, 0, 0, 0, 1}};
  ByteVector payload;
  append(payload, &header, sizeof header);
  append(payload, &page, sizeof page);
  return payload;
}

ByteVector lazy_free_at(std::uint64_t walk_end_ns, std::uint64_t start, std::uint64_t bytes) {
  const trace::LazyFreeHeader header{.walk_end_ns = walk_end_ns, .read_ns = walk_end_ns + 1};
  const trace::LazyFreeMapping mapping{.start = start, .end = start + 10 * 4096, .bytes = bytes};
  ByteVector payload;
  append(payload, &header, sizeof header);
  append(payload, &mapping, sizeof mapping);
  return payload;
}

ByteVector fork_family() {
  constexpr std::uint64_t kHeap = 0x20000000;
  const std::vector<TestVma> heap{{.start = kHeap, .path = "[heap]", .runs = {{9, 6}, {1, 4}}}};
  ByteVector out;
  add_frame(out, trace::FrameKind::segment, 0,
            segment(1, 0,
                    joined({attach(10, 100, 1, trace::Born::exec), module_at(10, 0x5000, 0x6000, "/usr/bin/job"),
                            python_at(10, 0x8000, 0x9000, 0x8100, 0x8200), code(10, 1, "job.py", "load", 17),
                            stack(10, 1, {0x5101, 0x8150}, {{1, 4, trace::kNoNativeIndex, 1, 0}}),
                            block(trace::RecordKind::allocate, 11, kHeap, 40960, 1), map(11, 0x7000000, 8192, 1),
                            range_record(trace::RecordKind::advise, 11, kHeap + 4096, 20480, MADV_FREE, 1),
                            touch_at(11, kHeap + 4096), kernel_faults_at(11, 0x7000000, 8192),
                            process_record(trace::RecordKind::fork, 12, 101),
                            block(trace::RecordKind::library_allocate, 12, 0x7000000, 4096, 1),
                            block(trace::RecordKind::release, 13, kHeap, 0, 0),
                            text(trace::RecordKind::mark, 14, "epoch", 1)})));
  add_frame(
      out, trace::FrameKind::segment, 1,
      segment(2, 0,
              joined({attach(12, 101, 100, trace::Born::fork), inherited(12, {{kHeap, 10}}), touch_at(17, kHeap)})));
  add_frame(out, trace::FrameKind::tracked, 1, tracked_at(15, kHeap, 6));
  add_frame(out, trace::FrameKind::walk, 0, walk(15, heap, 3));
  add_frame(out, trace::FrameKind::huge, 0, huge_at(15, kHeap));
  add_frame(out, trace::FrameKind::lazy_free, 0, lazy_free_at(15, kHeap, 8192));
  add_frame(out, trace::FrameKind::walk, 1, walk(16, heap, 3));
  add_frame(out, trace::FrameKind::walk, 1, walk(18, heap, 4));
  ByteVector json;
  append(json, R"({"pid":100,"parent":1,"exe":"/x","command":["a","b"],"born_ns":5,"limit_bytes":7})");
  for (const auto kind : {trace::FrameKind::process, trace::FrameKind::ended, trace::FrameKind::cgroup})
    add_frame(out, kind, 0, json);
  const trace::TextHeader header{.time_ns = 16, .moment = 0, .text_bytes = 28};
  ByteVector status;
  append(status, &header, sizeof header);
  append(status, "VmHWM:\t 123 kB\nVmPTE:\t 12 kB\n");
  add_frame(out, trace::FrameKind::status, 0, status);
  return out;
}

// Exact mode: two threads, a record between their runs, a clock of the collector.
ByteVector exact_threads() {
  constexpr std::uint64_t kHeap = 0x20000000;
  ByteVector begin = attach(10, 100, 1, trace::Born::exec);
  const auto exact = trace::Mode::exact;
  std::memcpy(begin.data() + offsetof(trace::AttachRecord, mode), &exact, sizeof exact);
  DrainedChunks chunks;
  chunks.add(1, 1,
             joined({begin, clock_at(10, 100), compact_allocate(1, kHeap, 24, 1), stack(10, 1, {0x5101}),
                     compact_allocate(2, kHeap + 32, 300, 1), map(11, 0x7000000, 8192, 1), compact_release(3, kHeap)}));
  chunks.add(2, 2, joined({clock_at(12, 120), compact_release(1, kHeap + 32), compact_allocate(0, kHeap, 56, 0)}));
  chunks.columns.add_clock(9, 90);
  chunks.columns.add_clock(20, 200);
  ByteVector out;
  for (const ByteVector& payload : chunks.segments) add_frame(out, trace::FrameKind::segment, 0, payload);
  add_frame(out, trace::FrameKind::blocks, 0, chunks.columns.take_payload());
  add_frame(out, trace::FrameKind::walk, 0, walk(13, {{.start = kHeap, .path = "[heap]", .runs = {{9, 6}}}}));
  return out;
}

void write(const std::string& path, const ByteVector& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make_corpus DIR\n", stderr);
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  write(std::string(argv[1]) + "/fork_family", fork_family());
  write(std::string(argv[1]) + "/exact_threads", exact_threads());
  TestRecording recording;
  recording.add(100, {segment(1, 0, attach(10, 100, 1, trace::Born::exec))}, {});
  std::filesystem::copy_file(recording.process_directory(100) + "/events.zst", std::string(argv[1]) + "/events_file",
                             std::filesystem::copy_options::overwrite_existing);
  return 0;
}
