#include "recording/run_decoder.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace whyrss {
namespace {

std::uint32_t byte_at(const std::byte* plane, std::size_t index) {
  return std::to_integer<std::uint32_t>(plane[index]);
}

std::uint32_t word_at(const std::byte* plane, std::size_t index) {
  std::uint16_t word = 0;
  std::memcpy(&word, plane + index * sizeof word, sizeof word);
  return word;
}

// Of an absent plane. One value more, since the one behind the last is read too.
constexpr std::array<std::byte, (kMostEvents + 1) * 2> kZeros{};

// Bit i of a byte becomes byte i, 0 or 1.
std::uint64_t spread(std::byte bits) {
  const std::uint64_t each = (std::to_integer<std::uint64_t>(bits) * 0x0101010101010101) & 0x8040201008040201;
  return ((each + 0x00406070787c7e7f) >> 7) & 0x0101010101010101;
}

}  // namespace

// How many of the bits are set.
std::size_t RunDecoder::read_bits(Plane from, std::array<std::uint8_t, kMostEvents>& to) const {
  const std::byte* bits = plane(from);
  for (std::size_t i = 0; i < event_count_; i += 8) {
    const std::uint64_t each = spread(bits[i / 8]);
    std::memcpy(to.data() + i, &each, sizeof each);
  }
  return static_cast<std::size_t>(std::count(to.data(), to.data() + event_count_, 1));
}

// How many events stand before that place of the chunk.
std::size_t RunDecoder::events_before(std::uint32_t offset, const BlockRun& run) const {
  std::uint32_t at = run.offset + (run.clock_ns != 0 ? static_cast<std::uint32_t>(sizeof(trace::ClockRecord)) : 0);
  std::size_t event = 0, gap = 0;
  for (; event < event_count_; ++event) {
    for (; gap < run.gap_count; ++gap) {
      BlockGap next{};
      std::memcpy(&next, plane(Plane::gap) + gap * sizeof next, sizeof next);
      if (next.event > event) break;
      at += next.units * kGapUnit;
    }
    if (at >= offset) break;
    at += static_cast<std::uint32_t>(releases_[event] != 0 ? sizeof(trace::CompactRelease)
                                                           : sizeof(trace::CompactAllocate));
  }
  return event;
}

bool RunDecoder::begin(std::span<const std::byte> payload, const PayloadRuns& runs, std::size_t index,
                       std::uint32_t from_offset) {
  const BlockRun& run = runs.runs[index];
  for (std::size_t i = 0; i < kPlaneCount; ++i)
    planes_[i] = is_absent(run, static_cast<Plane>(i)) ? kZeros.data() : payload.data() + runs.places[index][i];
  next_ = known_ = ticked_ = allocation_ = left_out_ = 0;
  event_count_ = run.event_count;
  tick_shift_ = runs.tick_shift;
  ticks_ = run.base_ticks >> tick_shift_;
  last_address_ = 0;
  addresses_ = {};
  // Afterwards no value can lie outside of its plane.
  const bool fits = read_bits(Plane::kind, releases_) == std::size_t{run.event_count} - run.allocate_count &&
                    read_bits(Plane::known, knowns_) == run.known_count &&
                    read_bits(Plane::ticked, tickeds_) == run.ticked_count;
  if (!fits) event_count_ = 0;
  if (from_offset > run.offset) left_out_ = events_before(from_offset, run);
  return fits;
}

std::size_t RunDecoder::read(std::span<BlockEvent> out) {
  while (left_out_ > 0) left_out_ -= decode(out.first(std::min(out.size(), left_out_)));
  return decode(out);
}

// All that changes per event is in registers, and what nobody can predict is no branch.
std::size_t RunDecoder::decode(std::span<BlockEvent> out) {
  const std::byte *tick_0 = plane(Plane::tick_0), *tick_1 = plane(Plane::tick_1), *tick_high = plane(Plane::tick_high),
                  *backs = plane(Plane::back), *near_0 = plane(Plane::near_0), *near_1 = plane(Plane::near_1),
                  *far_0 = plane(Plane::far_0), *far_1 = plane(Plane::far_1), *far_high = plane(Plane::far_high),
                  *size_0 = plane(Plane::size_0), *size_1 = plane(Plane::size_1), *stack_0 = plane(Plane::stack_0),
                  *stack_1 = plane(Plane::stack_1), *stack_high = plane(Plane::stack_high);
  const std::size_t count = std::min(out.size(), event_count_ - next_);
  std::uint64_t ticks = ticks_;
  std::size_t ticked = ticked_;
  for (std::size_t i = 0, at = next_; i < count; ++i, ++at) {
    const std::uint32_t units =
        byte_at(tick_0, ticked) | byte_at(tick_1, ticked) << 8 | word_at(tick_high, ticked) << 16;
    ticks += units & (0 - std::uint32_t{tickeds_[at]});
    ticked += tickeds_[at];
    out[i].ticks = ticks << tick_shift_;
  }
  std::uint64_t last_address = last_address_;
  std::size_t known = known_;
  for (std::size_t i = 0, at = next_; i < count; ++i, ++at) {
    const std::size_t other = at - known;
    const std::uint64_t value = (byte_at(near_0, other) | byte_at(near_1, other) << 8 | byte_at(far_0, other) << 16 |
                                 byte_at(far_1, other) << 24) |
                                std::uint64_t{word_at(far_high, other)} << 32;
    const std::uint64_t moved = last_address + (((value >> 1) ^ (0 - (value & 1))) << kAddressUnitBits);
    const std::uint64_t same = addresses_[(at - 1 - byte_at(backs, known)) % kRecentEvents];
    last_address = moved ^ ((moved ^ same) & (0 - std::uint64_t{knowns_[at]}));
    known += knowns_[at];
    addresses_[at % kRecentEvents] = last_address;
    out[i].address = last_address;
  }
  std::size_t allocation = allocation_;
  for (std::size_t i = 0, at = next_; i < count; ++i, ++at) {
    const std::uint32_t releases = releases_[at];
    const std::uint32_t rotated = byte_at(size_0, allocation) | byte_at(size_1, allocation) << 8;
    const std::uint32_t size_bytes = (rotated << kSizeRotation | rotated >> (16 - kSizeRotation)) & 0xffff;
    out[i].size_bytes = size_bytes | (0 - releases);
    out[i].stack_id =
        byte_at(stack_0, allocation) | byte_at(stack_1, allocation) << 8 | word_at(stack_high, allocation) << 16;
    allocation += 1 - releases;
  }
  ticks_ = ticks;
  last_address_ = last_address;
  known_ = known;
  ticked_ = ticked;
  allocation_ = allocation;
  next_ += count;
  return count;
}

}  // namespace whyrss
