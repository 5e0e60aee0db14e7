#include "recording/block_payload.h"

#include <cstring>
#include <limits>

namespace whyrss {
namespace {

// Less is not worth a frame of the compressor's own.
constexpr std::size_t kLeastPartBytes = 1024;

BlocksHeader header_of(std::span<const std::byte> front) {
  BlocksHeader header{};
  std::memcpy(&header, front.data(), sizeof header);
  return header;
}

}  // namespace

std::size_t full_plane_bytes(const BlockRun& run, Plane plane) {
  switch (plane) {
    case Plane::kind:
    case Plane::known:
    case Plane::ticked:
      return (run.event_count + std::size_t{7}) / 8;
    case Plane::tick_0:
    case Plane::tick_1:
      return run.ticked_count;
    case Plane::tick_high:
      return std::size_t{run.ticked_count} * 2;
    case Plane::back:
      return run.known_count;
    case Plane::near_0:
    case Plane::near_1:
    case Plane::far_0:
    case Plane::far_1:
      return static_cast<std::size_t>(run.event_count - run.known_count);
    case Plane::far_high:
      return static_cast<std::size_t>(run.event_count - run.known_count) * 2;
    case Plane::size_0:
    case Plane::size_1:
    case Plane::stack_0:
    case Plane::stack_1:
      return run.allocate_count;
    case Plane::stack_high:
      return std::size_t{run.allocate_count} * 2;
    case Plane::gap:
      return run.gap_count * sizeof(BlockGap);
  }
  return 0;
}

std::size_t plane_bytes(const BlockRun& run, Plane plane) {
  return is_absent(run, plane) ? 0 : full_plane_bytes(run, plane);
}

std::size_t runs_bytes(std::span<const std::byte> front) {
  if (front.size() < sizeof(BlocksHeader)) return 0;
  return sizeof(BlocksHeader) + std::size_t{header_of(front).run_count} * sizeof(BlockRun);
}

bool read_runs(std::span<const std::byte> front, std::size_t payload_bytes, PayloadRuns& out) {
  const std::size_t needed = runs_bytes(front);
  if (needed == 0 || needed > front.size() || payload_bytes > std::numeric_limits<std::uint32_t>::max()) return false;
  out.runs.clear();
  out.places.clear();
  out.tick_shift = header_of(front).tick_shift;
  if (out.tick_shift > kMostTickShift) return false;
  out.runs.resize((needed - sizeof(BlocksHeader)) / sizeof(BlockRun));
  out.places.resize(out.runs.size());
  if (out.runs.empty()) return needed == payload_bytes;
  std::memcpy(out.runs.data(), front.data() + sizeof(BlocksHeader), out.runs.size() * sizeof(BlockRun));
  for (const BlockRun& run : out.runs) {
    const bool fits = run.offset <= trace::kChunkBytes && run.bytes <= trace::kChunkBytes - run.offset &&
                      run.event_count <= kMostEvents && run.allocate_count <= run.event_count &&
                      run.known_count <= run.event_count && run.ticked_count <= run.event_count &&
                      !is_absent(run, Plane::gap);
    if (!fits) return false;
  }
  std::uint64_t at = needed;
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
    for (std::size_t i = 0; i < out.runs.size(); ++i) {
      out.places[i].at(plane) = static_cast<std::uint32_t>(at);
      at += plane_bytes(out.runs[i], static_cast<Plane>(plane));
      if (at > payload_bytes) return false;
    }
  }
  return at == payload_bytes;
}

std::vector<std::size_t> payload_parts(std::span<const std::byte> payload) {
  PayloadRuns of_payload;
  if (!read_runs(payload, payload.size(), of_payload)) return {payload.size()};
  std::vector<std::size_t> parts{runs_bytes(payload)};
  if (of_payload.places.empty()) return parts;
  std::size_t begin = parts.front();
  for (std::size_t plane = 1; plane < kPlaneCount; ++plane) {
    const std::size_t end = of_payload.places.front().at(plane);
    if (end - begin < kLeastPartBytes) continue;
    parts.push_back(end - begin);
    begin = end;
  }
  if (payload.size() > begin) parts.push_back(payload.size() - begin);
  return parts;
}

}  // namespace whyrss
