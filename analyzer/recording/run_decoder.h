// Decodes the runs of a `blocks` frame (block_payload.h), some events at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "recording/block_payload.h"

namespace whyrss {

struct BlockEvent {
  static constexpr std::uint32_t kReleased = 0xffffffff;
  std::uint64_t ticks;
  std::uint64_t address;
  std::uint32_t size_bytes;  // kReleased: a release
  std::uint32_t stack_id;    // of a release nothing that anybody knows
  [[nodiscard]] bool is_release() const { return size_bytes == kReleased; }
  // The same as 1 or 0, in a way that no compiler makes a branch of.
  [[nodiscard]] std::uint32_t released() const {
    return static_cast<std::uint32_t>((std::uint64_t{size_bytes} + 1) >> 32);
  }
};

// Bytes that a payload must have behind its end, because the value behind the last one of a plane is read too.
inline constexpr std::size_t kPayloadSlack = 8;

class RunDecoder {
 public:
  RunDecoder() = default;
  // Run number `index` of a payload, which must stay where it is and has kPayloadSlack more bytes behind it. False when
  // the run is damaged: nothing can be read. Events before `from_offset` of the chunk are left out.
  bool begin(std::span<const std::byte> payload, const PayloadRuns& runs, std::size_t index, std::uint32_t from_offset);
  // Fills the front of `out`, returns how many; 0: that was all.
  std::size_t read(std::span<BlockEvent> out);

 private:
  [[nodiscard]] const std::byte* plane(Plane number) const { return planes_[static_cast<std::size_t>(number)]; }
  std::size_t read_bits(Plane from, std::array<std::uint8_t, kMostEvents>& to) const;
  [[nodiscard]] std::size_t events_before(std::uint32_t offset, const BlockRun& run) const;
  std::size_t decode(std::span<BlockEvent> out);
  template <bool is_wide>
  void decode_ticks(std::span<BlockEvent> out);
  template <bool is_wide>
  void decode_addresses(std::span<BlockEvent> out);
  template <bool is_wide>
  void decode_allocations(std::span<BlockEvent> out);

  std::array<const std::byte*, kPlaneCount> planes_{};
  std::size_t next_ = 0, event_count_ = 0;
  std::size_t left_out_ = 0;                             // events to come that are not wanted
  std::size_t known_ = 0, ticked_ = 0, allocation_ = 0;  // the next one
  std::uint64_t ticks_ = 0, last_address_ = 0;           // ticks in units of 2^tick_shift_
  unsigned tick_shift_ = 0;
  std::array<std::uint64_t, kRecentEvents> addresses_{};
  std::array<std::uint8_t, kMostEvents> releases_{}, knowns_{}, tickeds_{};  // 1 for each event that is one
};

}  // namespace whyrss
