// The payload of a `blocks` frame: the compact records of exact mode, column by column. Written by the collector while
// it drains (block_columns.h), read by decode/ as hostile bytes (run_decoder.h).
//
//   BlocksHeader, BlockRun x run_count, then the planes in the order of `Plane`, each over all runs
//
// A run is a stretch of one lease that holds nothing but compact records and descriptions (stacks, modules, ...), which
// do not care about order; what does begins another run. So a reader knows the place of every record of `segment`
// frames among them, and can begin with any run: it says where its part of each plane begins, and deltas start anew.
//
// A run of lease 0 has no events: it is a reading of both clocks by the collector.
//
// Columns are cut into bytes of equal weight, one plane each, as wide as the widest value, and what of a plane is zero
// throughout a run is left out: neither side has to read lengths, and a compressor sees bytes of one kind. Per
// event:
//   kind       bit, eight events a byte: 1: release, 0: allocate
//   known      bit: the same address stood 1 to 256 events back, which is so for most: blocks die young, and allocators
//              give back what came last
//   ticks      since the event before, in units of 2^tick_shift: the last bits of clocks are noise that no compressor
//   can
//              do anything about
// Per known address: how many events back, less one. Per other one: the zigzag difference to the event before, in units
// of 8. Per allocation: the size, rotated by three bits so that multiples of 8 are small, and the stack id. Per gap
// (other records here): the number of the event that follows it, and its bytes in units of 8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

struct BlocksHeader {
  std::uint32_t run_count;
  std::uint32_t tick_shift;  // at most kMostTickShift
};

struct BlockRun {
  std::uint64_t lease;
  std::uint64_t clock_ns;    // of the ClockRecord at its start (taken at base_ticks); 0: it goes on in its lease
  std::uint64_t base_ticks;  // to which the first event's are added
  std::uint64_t first_ticks, last_ticks;  // of its events, rounded as they are; base_ticks if there is none
  std::uint32_t offset, bytes;            // in the chunk, with the clock
  std::uint32_t tid;
  std::uint32_t lost_before;  // as in SegmentHeader
  std::uint16_t event_count, allocate_count, known_count, ticked_count, gap_count;
  std::uint16_t reserved;
  std::uint32_t absent_planes;  // bits, by number: all zeros
};
static_assert(sizeof(BlocksHeader) == 8 && sizeof(BlockRun) == 72);
static_assert(std::has_unique_object_representations_v<BlockRun>);

struct BlockGap {
  std::uint16_t event, units;
};

// A byte of each value, unless said.
enum class Plane : std::uint8_t {
  kind,    // bits
  known,   // bits
  ticked,  // bits
  tick_0,
  tick_1,
  tick_high,  // two bytes
  back,
  near_0,
  near_1,
  far_0,
  far_1,
  far_high,  // two bytes
  size_0,
  size_1,
  stack_0,
  stack_1,
  stack_high,  // two bytes
  gap,         // BlockGap
};
inline constexpr std::size_t kPlaneCount = static_cast<std::size_t>(Plane::gap) + 1;

inline constexpr std::uint32_t kMostTickShift = 8;
inline constexpr std::uint32_t kRecentEvents = 256;
inline constexpr unsigned kAddressUnitBits = 3;
inline constexpr std::uint32_t kGapUnit = 8;
inline constexpr unsigned kSizeRotation = 3;
inline constexpr std::size_t kMostEvents = trace::kChunkBytes / sizeof(trace::CompactRelease);

[[nodiscard]] inline bool is_absent(const BlockRun& run, Plane plane) {
  return (run.absent_planes >> static_cast<unsigned>(plane) & 1) != 0;
}
// The bytes of a run in a plane; and as if it were not absent.
std::size_t plane_bytes(const BlockRun& run, Plane plane);
std::size_t full_plane_bytes(const BlockRun& run, Plane plane);

// Where the part of one run begins in each plane, in bytes of the payload.
using RunPlace = std::array<std::uint32_t, kPlaneCount>;

struct PayloadRuns {
  std::uint32_t tick_shift = 0;
  std::vector<BlockRun> runs;
  std::vector<RunPlace> places;
};

// The runs of a payload of `payload_bytes`, of which `front` is there: enough for the runs. False when they do not
// describe such a payload. Which runs may be decoded is only known when their tags are seen.
bool read_runs(std::span<const std::byte> front, std::size_t payload_bytes, PayloadRuns& out);
// Bytes from the front of a payload that read_runs() needs, 0 when `front` (8 bytes at least) begins none.
std::size_t runs_bytes(std::span<const std::byte> front);
// A payload cut where its bytes change their character: the runs first, then the planes, small ones with the next.
std::vector<std::size_t> payload_parts(std::span<const std::byte> payload);

}  // namespace whyrss
