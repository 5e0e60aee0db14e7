// The payload of a `blocks` frame: the compact records of exact mode, column by column. Written by the collector while
// it drains, read by ingest as hostile bytes; one header describes both directions.
//
//   BlocksHeader, BlockRun x run_count, then five planes, each over all runs:
//   tags | ticks | addresses | sizes | stacks
//
// A run is a stretch of one lease that holds nothing but compact records and descriptions (stacks, modules, ...), which
// do not care about order; what does begins another run. So a reader knows the place of every record of `segment`
// frames among them, and can begin with any run: it says where its part of each plane begins, and deltas start anew.
//
// A run of lease 0 has no events: it is a reading of both clocks by the collector.
//
// An event is a tag byte and, in the planes, as many bytes (little-endian) as the tag says:
//   bit 0      1: release, 0: allocate
//   bits 1-2   bytes of ticks since the event before: 0, 1, 2, 4
//   bits 3-4   bytes of the address: 1: how many events back (1 to 255) the same one stood, which is so for most:
//   blocks
//              die young, and allocators give back what came last; 2, 3, 6: the zigzag difference to the event before,
//              in units of 8
//   bit 5      allocate: bytes of the size: 1, 2
//   bits 6-7   allocate: bytes of the stack id: 0 (the one of the allocation before), 1, 2, 4
// A release with bits 5 to 7 set is none: its "ticks" are the bytes, in units of 8, of other records here.
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
  std::uint32_t run_count, reserved;
};

struct BlockRun {
  std::uint64_t lease;
  std::uint64_t clock_ns;    // of the ClockRecord at its start (taken at base_ticks); 0: it goes on in its lease
  std::uint64_t base_ticks;  // to which the first event's are added
  std::uint64_t first_ticks, last_ticks;  // of its events; base_ticks if there is none
  std::uint32_t offset, bytes;            // in the chunk, with the clock
  std::uint32_t tid;
  std::uint32_t lost_before;  // as in SegmentHeader
  std::uint32_t tag_count;    // events and gaps
  std::uint32_t tick_bytes, address_bytes, size_bytes, stack_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(BlocksHeader) == 8 && sizeof(BlockRun) == 80);
static_assert(std::has_unique_object_representations_v<BlockRun>);

// A lease as far as its records were taken in.
struct LeaseProgress {
  std::uint64_t lease = 0;
  std::uint32_t offset = 0;
  bool timed = false;  // a ClockRecord came
  std::uint64_t ticks = 0;
};

inline constexpr std::uint32_t kRecentAddresses = 256;

// Builds payloads. Growing, not thread-safe.
class BlockColumns {
 public:
  struct Source {
    std::uint32_t tid = 0, lost_before = 0;
  };

  // Takes compact records from the front of `bytes`, which begin at progress.offset of a lease and may be overwritten
  // meanwhile by somebody else. Returns how many bytes it took: up to the first record that it does not take (another
  // kind, cut off, before any clock, or such as no shim writes). ClockRecords are taken too.
  std::size_t take(std::span<const std::byte> bytes, const Source& source, LeaseProgress& progress);

  // Descriptions that lie between compact records of the lease, so that the run goes on behind them.
  void skip(std::uint32_t size_bytes, LeaseProgress& progress);

  // A reading of both clocks; `ticks` are those of the processor, which writers may use or not.
  void add_clock(std::uint64_t time_ns, std::uint64_t ticks);

  [[nodiscard]] bool empty() const { return runs_.empty(); }
  [[nodiscard]] std::uint64_t event_count() const { return event_count_; }
  [[nodiscard]] std::size_t payload_bytes() const;
  // Empties it.
  std::vector<std::byte> take_payload();

 private:
  // Room for what one chunk can need is made at once, so that an event needs no check.
  struct Plane {
    std::vector<std::byte> bytes;
    std::size_t used = 0;
    void make_room(std::size_t more);
  };
  static constexpr std::size_t kTags = 0, kTicks = 1, kAddresses = 2, kSizes = 3, kStacks = 4, kColumnCount = 5;
  using Ends = std::array<std::size_t, kColumnCount>;

  [[nodiscard]] bool goes_on(const LeaseProgress& progress) const;
  void begin_run(const Source& source, const LeaseProgress& progress, std::uint64_t clock_ns);
  void close_run();
  std::size_t take_events(std::span<const std::byte> bytes, LeaseProgress& progress);
  bool take_clock(std::span<const std::byte> bytes, const Source& source, LeaseProgress& progress);

  // The addresses of the last events, and for a hash of each when it was. Older entries of both are seen to be so.
  struct Recent {
    static constexpr unsigned kHashBits = 10;
    std::array<std::uint64_t, kRecentAddresses> addresses{};
    std::array<std::uint32_t, std::size_t{1} << kHashBits> event_at{};
    std::uint32_t event = kRecentAddresses;  // number of the next one; those of other runs are too far back
  };

  std::array<Plane, kColumnCount> planes_;
  Recent recent_;
  std::vector<BlockRun> runs_;
  Ends run_begin_{};  // of the open run
  bool open_ = false, run_has_events_ = false;
  bool ticks_are_ns_ = false;  // where the writers have no better clock
  std::uint64_t last_address_ = 0;
  std::uint32_t last_stack_ = 0;
  std::uint64_t event_count_ = 0;
};

struct BlockEvent {
  static constexpr std::uint32_t kReleased = 0xffffffff;
  std::uint64_t ticks;
  std::uint64_t address;
  std::uint32_t size_bytes;  // kReleased: a release
  std::uint32_t stack_id;
  [[nodiscard]] bool is_release() const { return size_bytes == kReleased; }
};

// Bytes that a payload must have behind its end, because values are read eight bytes at a time.
inline constexpr std::size_t kPayloadSlack = 8;

// Where the part of one run begins in each plane, in bytes of the payload.
struct RunPlace {
  std::array<std::uint32_t, 5> begin{};
};

// The runs of a payload of `payload_bytes`, of which `front` is there: enough for the runs. False when they do not
// describe such a payload. Which runs may be decoded is only known when their tags are seen.
bool read_runs(std::span<const std::byte> front, std::size_t payload_bytes, std::vector<BlockRun>& runs,
               std::vector<RunPlace>& places);
// Bytes from the front of a payload that read_runs() needs, 0 when `front` (8 bytes at least) begins none.
std::size_t runs_bytes(std::span<const std::byte> front);

// Decodes one run, some events at a time. The payload must stay where it is.
class RunDecoder {
 public:
  RunDecoder() = default;
  // `payload` has kPayloadSlack more bytes behind it. False when the run is damaged: nothing can be read.
  // Events before `from_offset` of the chunk are left out.
  bool begin(std::span<const std::byte> payload, const BlockRun& run, const RunPlace& place, std::uint32_t from_offset);
  // Fills the front of `out`, returns how many; 0: that was all.
  std::size_t read(std::span<BlockEvent> out);

 private:
  const std::byte *tag_ = nullptr, *tags_end_ = nullptr;
  const std::byte *tick_ = nullptr, *address_ = nullptr, *size_ = nullptr, *stack_ = nullptr;
  std::uint64_t ticks_ = 0, last_address_ = 0;
  std::uint32_t last_stack_ = 0, offset_ = 0, from_offset_ = 0, event_ = 0;
  std::array<std::uint64_t, kRecentAddresses> recent_{};
};

}  // namespace whyrss
