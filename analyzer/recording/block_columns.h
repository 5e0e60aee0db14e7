// Takes compact records out of chunks and builds the payloads of `blocks` frames (block_payload.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "recording/block_payload.h"

namespace whyrss {

// A lease as far as its records were taken in.
struct LeaseProgress {
  std::uint64_t lease = 0;
  std::uint32_t offset = 0;
  bool timed = false;  // a ClockRecord came
  std::uint64_t ticks = 0;
};

// Builds payloads. Growing, not thread-safe.
class BlockColumns {
 public:
  struct Source {
    std::uint32_t tid = 0, lost_before = 0;
  };

  BlockColumns();
  // Ticks are rounded down to multiples of 2^tick_shift.
  explicit BlockColumns(std::uint32_t tick_shift) : tick_shift_(tick_shift) {}

  // Takes compact records from the front of `bytes`, which begin at progress.offset of a lease and may be overwritten
  // meanwhile by another process. Returns how many bytes it took: up to the first record that it does not take (another
  // kind, cut off, before any clock, or such as no shim writes). ClockRecords are taken too.
  std::size_t take(std::span<const std::byte> bytes, const Source& source, LeaseProgress& progress);

  // Descriptions that lie between compact records of the lease, so that the run goes on behind them.
  void skip(std::uint32_t size_bytes, LeaseProgress& progress);

  // A reading of both clocks; `ticks` are those of the processor, which writers may use or not.
  void add_clock(std::uint64_t time_ns, std::uint64_t ticks);

  [[nodiscard]] bool empty() const { return runs_.empty(); }
  [[nodiscard]] std::uint64_t event_count() const { return event_count_; }
  // At most; planes that turn out to be absent are not known while their run is open.
  [[nodiscard]] std::size_t payload_bytes() const;
  // Empties it.
  std::vector<std::byte> take_payload();

 private:
  class Bytes {
   public:
    // At least that much more; what is written there counts once it is added.
    std::byte* make_room(std::size_t more);
    void add(std::size_t written) { used_ += written; }
    [[nodiscard]] std::size_t size() const { return used_; }
    [[nodiscard]] const std::byte* data() const { return bytes_.data(); }
    void cut_back(std::size_t size) { used_ = size; }

   private:
    std::vector<std::byte> bytes_;
    std::size_t used_ = 0;
  };

  // Some records, apart by field; a few KiB, so that going over them again and again costs little.
  static constexpr std::size_t kTileEvents = 256;
  struct Tile {
    std::size_t events = 0, allocations = 0, bytes = 0;
    std::array<std::uint64_t, kTileEvents> addresses;
    std::array<std::uint32_t, kTileEvents> ticks;                 // as in the record
    std::array<std::uint64_t, kTileEvents + 1> sizes_and_stacks;  // of allocations
  };

  // The addresses of the last events, by a hash, and when it was. Older ones are seen to be so.
  struct Recent {
    static constexpr unsigned kHashBits = 10;
    std::array<std::uint64_t, std::size_t{1} << kHashBits> address{};
    std::array<std::uint32_t, std::size_t{1} << kHashBits> event_at{};
    std::uint32_t event = kRecentEvents;  // number of the next one; those of other runs are too far back
  };

  [[nodiscard]] bool goes_on(const LeaseProgress& progress) const;
  void begin_run(const Source& source, const LeaseProgress& progress, std::uint64_t clock_ns);
  void close_run();
  void add_bits(Plane number, std::array<std::uint8_t, kMostEvents + 8>& bits);
  void read_tile(std::span<const std::byte> bytes, Tile& tile);
  void add_ticks(const Tile& tile, std::uint64_t& ticks);
  void add_addresses(const Tile& tile);
  void add_allocations(const Tile& tile);
  std::size_t take_events(std::span<const std::byte> bytes, LeaseProgress& progress);
  bool take_clock(std::span<const std::byte> bytes, const Source& source, LeaseProgress& progress);

  Bytes& plane(Plane number) { return planes_[static_cast<std::size_t>(number)]; }

  std::array<Bytes, kPlaneCount> planes_;
  std::array<std::size_t, kPlaneCount> run_begin_{};                             // of the open run
  std::array<std::uint8_t, kMostEvents + 8> releases_{}, knowns_{}, tickeds_{};  // 1 for each of its events that is one
  Recent recent_;
  std::vector<BlockRun> runs_;
  bool open_ = false;
  std::uint32_t tick_shift_;
  bool ticks_are_ns_ = false;  // where the writers have no better clock
  std::uint64_t last_address_ = 0;
  std::uint64_t event_count_ = 0;
};

}  // namespace whyrss
