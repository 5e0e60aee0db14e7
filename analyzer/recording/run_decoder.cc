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
  std::uint64_t set = 0;
  for (std::size_t i = 0; i < event_count_; i += 8) {
    const std::uint64_t each = spread(bits[i / 8]);
    std::memcpy(to.data() + i, &each, sizeof each);
    set += (each * 0x0101010101010101) >> 56;
  }
  for (std::size_t i = event_count_; i % 8 != 0; ++i) set -= to[i];  // no events
  return set;
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

// What no processor can predict is no branch, and planes that are absent mostly are no loads.
template <bool is_wide>
void RunDecoder::decode_ticks(std::span<BlockEvent> out) {
  const std::byte *low = plane(Plane::tick_0), *middle = plane(Plane::tick_1), *high = plane(Plane::tick_high);
  const std::uint8_t* tickeds = tickeds_.data() + next_;
  const unsigned shift = tick_shift_;
  std::uint64_t ticks = ticks_;
  std::size_t ticked = ticked_;
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint32_t units = byte_at(low, ticked);
    if constexpr (is_wide) units |= byte_at(middle, ticked) << 8 | word_at(high, ticked) << 16;
    const std::uint32_t is_ticked = tickeds[i];
    ticks += units & (0 - is_ticked);
    ticked += is_ticked;
    out[i].ticks = ticks << shift;
  }
  ticks_ = ticks;
  ticked_ = ticked;
}

template <bool is_wide>
void RunDecoder::decode_addresses(std::span<BlockEvent> out) {
  const std::byte *backs = plane(Plane::back), *near_0 = plane(Plane::near_0), *near_1 = plane(Plane::near_1),
                  *far_0 = plane(Plane::far_0), *far_1 = plane(Plane::far_1), *far_high = plane(Plane::far_high);
  const std::uint8_t* knowns = knowns_.data() + next_;
  std::uint64_t last_address = last_address_;
  std::size_t known = known_, other = next_ - known_;
  for (std::size_t i = 0, at = next_; i < out.size(); ++i, ++at) {
    std::uint64_t value = byte_at(near_0, other) | byte_at(near_1, other) << 8 | byte_at(far_0, other) << 16;
    if constexpr (is_wide)
      value |= std::uint64_t{byte_at(far_1, other)} << 24 | std::uint64_t{word_at(far_high, other)} << 32;
    const std::uint64_t moved = last_address + (((value >> 1) ^ (0 - (value & 1))) << kAddressUnitBits);
    const std::uint64_t same = addresses_[(at - 1 - byte_at(backs, known)) % kRecentEvents];
    const std::uint64_t is_known = knowns[i];
    last_address = moved ^ ((moved ^ same) & (0 - is_known));
    known += is_known;
    other += 1 - is_known;
    addresses_[at % kRecentEvents] = last_address;
    out[i].address = last_address;
  }
  last_address_ = last_address;
  known_ = known;
}

template <bool is_wide>
void RunDecoder::decode_allocations(std::span<BlockEvent> out) {
  const std::byte *size_0 = plane(Plane::size_0), *size_1 = plane(Plane::size_1), *stack_0 = plane(Plane::stack_0),
                  *stack_1 = plane(Plane::stack_1), *stack_high = plane(Plane::stack_high);
  const std::uint8_t* releases = releases_.data() + next_;
  std::size_t allocation = allocation_;
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint32_t size_bytes = byte_at(size_0, allocation) << kSizeRotation;
    std::uint32_t stack = byte_at(stack_0, allocation) | byte_at(stack_1, allocation) << 8;
    if constexpr (is_wide) {
      const std::uint32_t rotated = byte_at(size_0, allocation) | byte_at(size_1, allocation) << 8;
      size_bytes = (rotated << kSizeRotation | rotated >> (16 - kSizeRotation)) & 0xffff;
      stack |= word_at(stack_high, allocation) << 16;
    }
    const std::uint32_t is_release = releases[i];
    out[i].size_bytes = size_bytes | (0 - is_release);
    out[i].stack_id = stack;
    allocation += 1 - is_release;
  }
  allocation_ = allocation;
}

std::size_t RunDecoder::decode(std::span<BlockEvent> out) {
  out = out.first(std::min(out.size(), event_count_ - next_));
  const auto have_any = [&](Plane first, Plane second) {
    return plane(first) != kZeros.data() || plane(second) != kZeros.data();
  };
  have_any(Plane::tick_1, Plane::tick_high) ? decode_ticks<true>(out) : decode_ticks<false>(out);
  have_any(Plane::far_1, Plane::far_high) ? decode_addresses<true>(out) : decode_addresses<false>(out);
  have_any(Plane::size_1, Plane::stack_high) ? decode_allocations<true>(out) : decode_allocations<false>(out);
  next_ += out.size();
  return out.size();
}

}  // namespace whyrss
