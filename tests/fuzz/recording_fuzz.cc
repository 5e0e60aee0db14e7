// libFuzzer target: a recording made of arbitrary bytes. The checksums of frames would keep the fuzzer
// out of the parsers, so the input is cut into frames here: [kind u8][process u8][size u16] payload ...;
// and the whole input is also given to the frame parser itself.
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "load/build.h"
#include "recording/frame_order.h"

namespace {

using namespace whyrss;

struct FuzzFrame {
  std::uint8_t kind, process;
  std::uint16_t size_bytes;
};

std::vector<std::unique_ptr<ProcessInput>> cut(std::span<const std::byte> bytes) {
  constexpr std::size_t kProcesses = 3;
  std::vector<std::unique_ptr<ProcessInput>> inputs;
  for (std::size_t i = 0; i < kProcesses; ++i) {
    auto& input = inputs.emplace_back(std::make_unique<ProcessInput>());
    input->pid = static_cast<std::uint32_t>(100 + i);
    input->start_ticks = 7;
  }
  while (bytes.size() >= sizeof(FuzzFrame)) {
    FuzzFrame header{};
    std::memcpy(&header, bytes.data(), sizeof header);
    bytes = bytes.subspan(sizeof header);
    const auto payload = bytes.first(std::min<std::size_t>(header.size_bytes, bytes.size()));
    bytes = bytes.subspan(payload.size());
    constexpr int kKinds = static_cast<int>(trace::FrameKind::lazy_free) + 2;  // one that nobody knows
    const auto kind = static_cast<trace::FrameKind>(header.kind % kKinds);
    ProcessInput& input = *inputs[header.process % kProcesses];
    const bool events = kind == trace::FrameKind::segment || kind == trace::FrameKind::blocks;
    auto& frames = events ? input.events.frames : input.pages.frames;
    frames.push_back({.kind = kind, .payload = {payload.begin(), payload.end()}});
  }
  return inputs;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  auto parsed = parse_frame_file(bytes, "fuzz");
  if (!parsed && parsed.error().empty()) __builtin_trap();
  if (parsed) {
    check_frames(*parsed, 2);
    if (parsed->frames.size() > 2) __builtin_trap();
  }
  Manifest manifest;
  manifest.target_pid = 100;
  manifest.started_ns = 1'000'000'000;
  auto inputs = cut(bytes);
  const RecordingAccount recording = build_account(manifest, inputs);
  for (const ProcessAccount& process : recording.processes) {
    for (const Account& account : process.accounts) {
      std::int64_t total = 0;
      for (const Slice& slice : account.slices) total += slice.bytes;
      if (total != account.rss_bytes) __builtin_trap();
    }
  }
  return 0;
}
