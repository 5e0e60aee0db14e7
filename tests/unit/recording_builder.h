// Writes small recordings for tests: records, walks, frames, directories.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "file_tree.h"
#include "recording/block_payload.h"
#include "recording/frame_file.h"
#include "recording/manifest.h"
#include "shim/trace/recording_format.h"
#include "shim/trace/trace_format.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss::testing_support {

using ByteVector = std::vector<std::byte>;

inline void append(ByteVector& out, const void* from, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  out.insert(out.end(), bytes, bytes + size);
}
inline void append(ByteVector& out, std::string_view text) { append(out, text.data(), text.size()); }
inline void pad(ByteVector& out) { out.resize((out.size() + 7) / 8 * 8); }

// A record with its variable part; sizes and header are filled in.
template <typename Record>
ByteVector record(trace::RecordKind kind, std::uint64_t time_ns, Record fixed, const ByteVector& variable = {}) {
  fixed.header = {
      .size_bytes = trace::padded(sizeof fixed + variable.size()), .kind = kind, .reserved = 0, .time_ns = time_ns};
  ByteVector out;
  append(out, &fixed, sizeof fixed);
  append(out, variable.data(), variable.size());
  pad(out);
  return out;
}

inline ByteVector attach(std::uint64_t time_ns, std::uint32_t pid, std::uint32_t parent, trace::Born born) {
  ByteVector variable;
  append(variable, "/usr/bin/job");
  append(variable, std::string_view("job\0--fast\0", 11));
  append(variable, "/lib/libc.so.6");
  trace::AttachRecord fixed{};
  fixed.pid = pid;
  fixed.parent_pid = parent;
  fixed.born = born;
  fixed.allocator = trace::Allocator::glibc;
  fixed.exe_bytes = 12;
  fixed.command_bytes = 11;
  fixed.allocator_path_bytes = 14;
  fixed.page_bytes = 4096;
  fixed.own_start = 0x10000000;
  fixed.own_end = 0x10010000;
  return record(trace::RecordKind::attach, time_ns, fixed, variable);
}

inline ByteVector tables(std::uint64_t time_ns, std::uint32_t pid, std::uint32_t inherited_pid = 0,
                         std::uint64_t inherited_since_ns = 0) {
  trace::TablesRecord fixed{};
  fixed.pid = pid;
  fixed.since_ns = time_ns;
  fixed.inherited_pid = inherited_pid;
  fixed.inherited_since_ns = inherited_since_ns;
  return record(trace::RecordKind::tables, time_ns, fixed);
}

inline ByteVector module_at(std::uint64_t time_ns, std::uint64_t start, std::uint64_t end, std::string_view path) {
  ByteVector variable;
  append(variable, path);
  trace::ModuleRecord fixed{};
  fixed.start = start;
  fixed.end = end;
  fixed.bias = start;
  fixed.path_bytes = static_cast<std::uint32_t>(path.size());
  return record(trace::RecordKind::module, time_ns, fixed, variable);
}

inline ByteVector stack(std::uint64_t time_ns, std::uint32_t id, const std::vector<std::uint64_t>& native,
                        const std::vector<trace::PythonFrame>& python = {},
                        const std::vector<trace::PythonFrame>& waiting = {}) {
  ByteVector variable;
  append(variable, native.data(), native.size() * sizeof native[0]);
  for (const auto& frames : {python, waiting})
    append(variable, frames.data(), frames.size() * sizeof(trace::PythonFrame));
  trace::StackRecord fixed{};
  fixed.stack_id = id;
  fixed.native_count = static_cast<std::uint16_t>(native.size());
  fixed.python_count = static_cast<std::uint16_t>(python.size());
  fixed.waiting_count = static_cast<std::uint16_t>(waiting.size());
  return record(trace::RecordKind::stack, time_ns, fixed, variable);
}

inline ByteVector code(std::uint64_t time_ns, std::uint32_t id, std::string_view file, std::string_view name,
                       std::uint32_t first_line) {
  ByteVector variable;
  append(variable, file);
  append(variable, name);
  append(variable, name);
  trace::CodeRecord fixed{};
  fixed.code_id = id;
  fixed.first_line = first_line;
  fixed.file_bytes = static_cast<std::uint32_t>(file.size());
  fixed.name_bytes = fixed.qualname_bytes = static_cast<std::uint32_t>(name.size());
  fixed.file_kind = fixed.name_kind = fixed.qualname_kind = 1;
  return record(trace::RecordKind::code, time_ns, fixed, variable);
}

inline ByteVector python_at(std::uint64_t time_ns, std::uint64_t start, std::uint64_t end, std::uint64_t eval_start,
                            std::uint64_t eval_end) {
  ByteVector variable;
  append(variable, "3.11.2");
  trace::PythonRecord fixed{};
  fixed.version_hex = 0x030b02f0;
  fixed.runtime_start = start;
  fixed.runtime_end = end;
  fixed.eval_start = eval_start;
  fixed.eval_end = eval_end;
  fixed.version_bytes = 6;
  return record(trace::RecordKind::python, time_ns, fixed, variable);
}

inline ByteVector block(trace::RecordKind kind, std::uint64_t time_ns, std::uint64_t address, std::uint64_t size,
                        std::uint32_t stack_id, std::uint32_t tid = 1) {
  trace::BlockRecord fixed{};
  fixed.address = address;
  fixed.size_bytes = size;
  fixed.stack_id = stack_id;
  fixed.tid = tid;
  return record(kind, time_ns, fixed);
}

inline ByteVector thread_created(std::uint64_t time_ns, std::uint32_t tid, std::uint32_t creator_tid) {
  trace::ThreadCreatorRecord fixed{};
  fixed.tid = tid;
  fixed.creator_tid = creator_tid;
  return record(trace::RecordKind::thread_creator, time_ns, fixed);
}

inline ByteVector thread_started(std::uint64_t time_ns, std::uint32_t tid, std::uint32_t stack_id) {
  trace::ThreadRecord fixed{};
  fixed.tid = tid;
  fixed.stack_id = stack_id;
  return record(trace::RecordKind::thread, time_ns, fixed);
}

inline ByteVector map(std::uint64_t time_ns, std::uint64_t address, std::uint64_t size, std::uint32_t stack_id,
                      trace::MapOrigin origin = trace::MapOrigin::program, int fd = -1,
                      trace::MappedFile file = trace::MappedFile::none) {
  trace::MapRecord fixed{};
  fixed.file = file;
  fixed.address = address;
  fixed.size_bytes = size;
  fixed.fd = fd;
  fixed.flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  fixed.origin = origin;
  fixed.stack_id = stack_id;
  return record(trace::RecordKind::map, time_ns, fixed);
}

// An unmap, advise, protect or break_moved record.
inline ByteVector range_record(trace::RecordKind kind, std::uint64_t time_ns, std::uint64_t address, std::uint64_t size,
                               std::int64_t argument = 0, std::uint32_t stack_id = 0) {
  trace::RangeRecord fixed{};
  fixed.stack_id = stack_id;
  fixed.address = address;
  fixed.size_bytes = size;
  fixed.argument = argument;
  return record(kind, time_ns, fixed);
}

inline ByteVector process_record(trace::RecordKind kind, std::uint64_t time_ns, std::uint32_t pid,
                                 std::int32_t status = 0) {
  trace::ProcessRecord fixed{};
  fixed.pid = pid;
  fixed.status = status;
  return record(kind, time_ns, fixed);
}

inline ByteVector touch(std::uint64_t time_ns, std::uint64_t address, std::uint32_t weight_faults,
                        std::uint32_t missed_faults = 0) {
  trace::TouchRecord fixed{};
  fixed.address = address;
  fixed.weight_faults = weight_faults;
  fixed.missed_faults = missed_faults;
  return record(trace::RecordKind::touch, time_ns, fixed);
}

inline ByteVector text(trace::RecordKind kind, std::uint64_t time_ns, std::string_view words,
                       std::uint32_t argument = 0) {
  ByteVector variable;
  append(variable, words);
  trace::TextRecord fixed{};
  fixed.argument = argument;
  fixed.text_bytes = static_cast<std::uint32_t>(words.size());
  return record(kind, time_ns, fixed, variable);
}

inline ByteVector inherited(std::uint64_t time_ns, const std::vector<trace::PageRun>& runs) {
  ByteVector variable;
  append(variable, runs.data(), runs.size() * sizeof runs[0]);
  trace::InheritedRecord fixed{};
  fixed.run_count = static_cast<std::uint32_t>(runs.size());
  fixed.complete = 1;
  return record(trace::RecordKind::inherited, time_ns, fixed, variable);
}

inline ByteVector joined(const std::vector<ByteVector>& parts) {
  ByteVector out;
  for (const ByteVector& part : parts) append(out, part.data(), part.size());
  return out;
}

inline ByteVector segment(std::uint64_t lease, std::uint32_t offset, const ByteVector& records,
                          std::uint32_t lost = 0) {
  const trace::SegmentHeader header{.lease = lease,
                                    .offset = offset,
                                    .bytes = static_cast<std::uint32_t>(records.size()),
                                    .tid = 1,
                                    .lost_before = lost};
  ByteVector out;
  append(out, &header, sizeof header);
  append(out, records.data(), records.size());
  return out;
}

struct TestVma {
  std::uint64_t start = 0;
  std::string path;
  trace::Backing backing = trace::Backing::anonymous;
  std::uint32_t perms = trace::VmaPerms::read | trace::VmaPerms::write;
  std::vector<trace::WalkRun> runs;
};

inline ByteVector walk(std::uint64_t time_ns, const std::vector<TestVma>& vmas, std::uint64_t minor_faults = 0,
                       trace::WalkTrigger trigger = trace::WalkTrigger::start, std::uint64_t took_ns = 1) {
  trace::WalkHeader header{};
  header.trigger = trigger;
  header.begin_ns = time_ns - took_ns;
  header.end_ns = time_ns;
  header.minor_faults = minor_faults;
  header.vma_count = static_cast<std::uint32_t>(vmas.size());
  header.page_bytes = 4096;
  ByteVector out;
  append(out, &header, sizeof header);
  for (const TestVma& vma : vmas) {
    trace::WalkVma fixed{};
    fixed.start = fixed.end = vma.start;
    for (const trace::WalkRun& run : vma.runs) fixed.end += std::uint64_t{run.page_count} * 4096;
    fixed.perms = vma.perms;
    fixed.backing = vma.backing;
    fixed.path_bytes = static_cast<std::uint32_t>(vma.path.size());
    fixed.run_count = static_cast<std::uint32_t>(vma.runs.size());
    append(out, &fixed, sizeof fixed);
    append(out, vma.path);
    pad(out);
    append(out, vma.runs.data(), vma.runs.size() * sizeof(trace::WalkRun));
  }
  return out;
}

inline constexpr trace::SessionId kSession{.high = 0x1234, .low = 0x5678};

// A recording directory that removes itself.
class TestRecording {
 public:
  TestRecording() {
    manifest.session = hex32(kSession.high, kSession.low);
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    manifest.host = host;
    const auto boot_id = read_file("/proc/sys/kernel/random/boot_id");
    if (boot_id) manifest.boot_id = boot_id->substr(0, boot_id->find('\n'));
    manifest.state = "complete";
    manifest.target_pid = 100;
    manifest.started_ns = 1'000'000'000;
    manifest.ended_ns = 9'000'000'000;
  }

  // Segment payloads of one process, and its other frames
  // (and those of exact mode's blocks).
  void add(std::uint32_t pid, const std::vector<ByteVector>& segments,
           const std::vector<std::pair<trace::FrameKind, ByteVector>>& pages,
           const std::vector<ByteVector>& blocks = {}) {
    add_written(
        pid,
        [&](FrameWriter& events) {
          for (const ByteVector& payload : segments)
            static_cast<void>(events.append(trace::FrameKind::segment, 1, payload));
          for (const ByteVector& payload : blocks)
            static_cast<void>(events.append(trace::FrameKind::blocks, 1, payload, payload_parts(payload)));
        },
        pages);
  }
  // The same where all events at once would take too much memory.
  void add_written(std::uint32_t pid, const std::function<void(FrameWriter&)>& write_events,
                   const std::vector<std::pair<trace::FrameKind, ByteVector>>& pages) {
    const std::string base = process_directory(pid);
    std::filesystem::create_directory(base);
    FileIdentity identity{.kind = trace::FileKind::events, .session = kSession, .pid = pid, .start_ticks = 7};
    auto events = FrameWriter::create(base + "/events.zst", identity);
    write_events(*events);
    identity.kind = trace::FileKind::pages;
    auto others = FrameWriter::create(base + "/pages.zst", identity);
    for (const auto& [kind, payload] : pages) static_cast<void>(others->append(kind, 1, payload));
    closed_.push_back({.directory = std::filesystem::path(base).filename(),
                       .events_frames = events->frame_count(),
                       .pages_frames = others->frame_count()});
  }

  // As its collector left it: closed, unless the test says otherwise.
  void write_manifest() {
    if (manifest.state == "complete") manifest.processes = closed_;
    std::ofstream(directory_ + "/manifest.json") << render_manifest(manifest);
  }
  [[nodiscard]] std::string process_directory(std::uint32_t pid) const {
    return directory_ + "/node.a." + std::to_string(pid) + ".7";
  }
  [[nodiscard]] const std::string& path() const { return directory_; }

  Manifest manifest;

 private:
  FileTree tree_;
  const std::string& directory_ = tree_.path();
  std::vector<ClosedProcess> closed_;
};

}  // namespace whyrss::testing_support
