#include "recording/block_columns.h"

#include <cstring>

#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss {
namespace {

using trace::ClockRecord;
using trace::CompactAllocate;
using trace::CompactRelease;
using trace::RecordKind;

// Threads hand a block over in 237 ns at least (small_blocks.cc), which is 600 ticks: in units of 16 all of them keep
// their order. Clocks of other processors are coarser.
#if defined(__x86_64__)
constexpr std::uint32_t kTickShift = 4;
#else
constexpr std::uint32_t kTickShift = 0;
#endif
static_assert(kTickShift <= kMostTickShift);

// Two readings of one clock, with an interruption in between, are not further apart; those of two clocks are.
constexpr std::uint64_t kSameTimeNs = 10'000'000;

// The first six bytes of a record, by which its kind is recognised.
constexpr std::uint64_t head_of(RecordKind kind, std::uint64_t record_bytes) {
  return static_cast<std::uint64_t>(kind) << 32 | record_bytes;
}
constexpr std::uint64_t kAddressUnit = 1U << kAddressUnitBits;
constexpr std::uint64_t kHeadMask = 0xffffffffffff;
constexpr std::uint64_t kAllocateHead = head_of(RecordKind::compact_allocate, sizeof(CompactAllocate));
constexpr std::uint64_t kReleaseHead = head_of(RecordKind::compact_release, sizeof(CompactRelease));
static_assert(offsetof(CompactRelease, kind) == 4 && offsetof(CompactRelease, address_high) == 6 &&
              offsetof(CompactRelease, address_low) == 8 && offsetof(CompactRelease, ticks_since) == 12 &&
              offsetof(CompactAllocate, size_bytes) == 16 && offsetof(CompactAllocate, stack_id) == 20);

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

bool all_zero(const std::byte* bytes, std::size_t count) {
  return count == 0 || (bytes[0] == std::byte{0} && std::memcmp(bytes, bytes + 1, count - 1) == 0);
}

// Cuts the values of a column into planes of one byte, and one of two for what is above. `seen` has the bits of all.
template <typename Value>
void cut(std::size_t count, std::uint64_t seen, std::byte* low, std::byte* middle, std::byte* high, Value value) {
  if (count == 0) return;  // planes that were never used are null
  for (std::size_t i = 0; i < count; ++i) low[i] = static_cast<std::byte>(value(i));
  if ((seen & 0xff00) == 0)
    std::memset(middle, 0, count);
  else
    for (std::size_t i = 0; i < count; ++i) middle[i] = static_cast<std::byte>(value(i) >> 8);
  if (high == nullptr) return;
  if ((seen & 0xffff0000) == 0) {
    std::memset(high, 0, count * sizeof(std::uint16_t));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto word = static_cast<std::uint16_t>(value(i) >> 16);
    std::memcpy(high + i * sizeof word, &word, sizeof word);
  }
}

}  // namespace

BlockColumns::BlockColumns() : BlockColumns(kTickShift) {}

std::byte* BlockColumns::Bytes::make_room(std::size_t more) {
  if (bytes_.size() < used_ + more) bytes_.resize((used_ + more) * 2);
  return bytes_.data() + used_;
}

bool BlockColumns::goes_on(const LeaseProgress& progress) const {
  return open_ && runs_.back().lease == progress.lease && runs_.back().offset + runs_.back().bytes == progress.offset;
}

void BlockColumns::begin_run(const Source& source, const LeaseProgress& progress, std::uint64_t clock_ns) {
  close_run();
  BlockRun run{};
  run.lease = progress.lease;
  run.clock_ns = clock_ns;
  run.base_ticks = run.first_ticks = run.last_ticks = progress.ticks;
  run.offset = progress.offset;
  run.tid = source.tid;
  run.lost_before = source.lost_before;
  runs_.push_back(run);
  for (std::size_t i = 0; i < kPlaneCount; ++i) run_begin_[i] = planes_[i].size();
  last_address_ = 0;
  recent_.event += kRecentEvents;  // no reference reaches into the run before
  open_ = true;
}

void BlockColumns::add_clock(std::uint64_t time_ns, std::uint64_t ticks) {
  const LeaseProgress nowhere{.lease = 0, .offset = 0, .timed = true, .ticks = ticks_are_ns_ ? time_ns : ticks};
  begin_run({}, nowhere, time_ns);
  close_run();
}

void BlockColumns::add_bits(Plane number, std::array<std::uint8_t, kMostEvents + 8>& bits) {
  const BlockRun& run = runs_.back();
  const std::size_t bytes = full_plane_bytes(run, number);
  std::memset(bits.data() + run.event_count, 0, 8);
  std::byte* to = plane(number).make_room(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    std::uint64_t each = 0;
    std::memcpy(&each, bits.data() + i * 8, sizeof each);
    to[i] = static_cast<std::byte>((each * 0x0102040810204080) >> 56);
  }
  plane(number).add(bytes);
}

void BlockColumns::close_run() {
  if (!open_) return;
  open_ = false;
  add_bits(Plane::kind, releases_);
  add_bits(Plane::known, knowns_);
  add_bits(Plane::ticked, tickeds_);
  for (std::size_t i = 0; i < kPlaneCount; ++i) {
    const std::size_t begin = run_begin_[i];
    if (static_cast<Plane>(i) == Plane::gap || !all_zero(planes_[i].data() + begin, planes_[i].size() - begin))
      continue;
    planes_[i].cut_back(begin);
    runs_.back().absent_planes |= 1U << i;
  }
}

bool BlockColumns::take_clock(std::span<const std::byte> bytes, const Source& source, LeaseProgress& progress) {
  if (bytes.size() < sizeof(ClockRecord)) return false;
  const auto clock = load<ClockRecord>(bytes.data());
  if (clock.header.size_bytes != sizeof clock || clock.header.kind != RecordKind::clock || clock.header.time_ns == 0)
    return false;
  const std::uint64_t apart = clock.ticks - clock.header.time_ns + kSameTimeNs;
  ticks_are_ns_ = apart < 2 * kSameTimeNs;
  progress.ticks = clock.ticks;
  progress.timed = true;
  begin_run(source, progress, clock.header.time_ns);
  runs_.back().bytes = sizeof clock;
  progress.offset += sizeof clock;
  return true;
}

// Up to the first record that is none of ours. Allocation or release, which no processor can predict, is no branch.
void BlockColumns::read_tile(std::span<const std::byte> bytes, Tile& tile) {
  std::uint8_t* const releases = releases_.data() + runs_.back().event_count;
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  std::size_t events = 0, allocations = 0;
  std::array<std::byte, sizeof(CompactAllocate)> last{};
  while (events < kTileEvents) {
    const std::byte* from = at;
    const std::ptrdiff_t left = end - at;
    if (left < static_cast<std::ptrdiff_t>(sizeof(CompactAllocate))) {
      if (left < static_cast<std::ptrdiff_t>(sizeof(CompactRelease))) break;
      std::memcpy(last.data(), at, sizeof(CompactRelease));
      from = last.data();
    }
    // Copied once: what is checked is what is used. An allocation's first 16 bytes are as a release's.
    const auto head = load<std::uint64_t>(from), tail = load<std::uint64_t>(from + 8),
               size_and_stack = load<std::uint64_t>(from + 16);
    const auto allocates = static_cast<std::uint64_t>((head & kHeadMask) == kAllocateHead);
    const auto releases_it = static_cast<std::uint64_t>((head & kHeadMask) == kReleaseHead);
    const std::uint64_t address = head >> 48 << 32 | (tail & 0xffffffff);
    // Bits that may not be there, of either kind.
    const std::uint64_t wrong = (address % kAddressUnit) | (size_and_stack & 0xffff0000 & (0 - allocates)) |
                                (allocates & static_cast<std::uint64_t>(from != at));
    if ((allocates | releases_it) == 0 || wrong != 0) break;
    tile.addresses[events] = address;
    tile.ticks[events] = static_cast<std::uint32_t>(tail >> 32);
    releases[events] = static_cast<std::uint8_t>(releases_it);
    ++events;
    tile.sizes_and_stacks[allocations] = size_and_stack;
    allocations += allocates;
    at += sizeof(CompactRelease) + (sizeof(CompactAllocate) - sizeof(CompactRelease)) * allocates;
  }
  tile.events = events;
  tile.allocations = allocations;
  tile.bytes = static_cast<std::size_t>(at - bytes.data());
}

void BlockColumns::add_ticks(const Tile& tile, std::uint64_t& ticks) {
  BlockRun& run = runs_.back();
  std::uint8_t* const tickeds = tickeds_.data() + run.event_count;
  std::array<std::uint32_t, kTileEvents + 1> units;
  std::size_t count = 0;
  const unsigned shift = tick_shift_;
  std::uint64_t now = ticks, before = ticks >> shift;
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < tile.events; ++i) {
    now += tile.ticks[i];
    const auto since = static_cast<std::uint32_t>((now >> shift) - before);
    before = now >> shift;
    units[count] = since;
    seen |= since;
    const auto is_ticked = static_cast<std::uint8_t>(since != 0);
    tickeds[i] = is_ticked;
    count += is_ticked;
  }
  ticks = now;
  cut(count, seen, plane(Plane::tick_0).make_room(count), plane(Plane::tick_1).make_room(count),
      plane(Plane::tick_high).make_room(count * 2), [&](std::size_t i) { return units[i]; });
  plane(Plane::tick_0).add(count);
  plane(Plane::tick_1).add(count);
  plane(Plane::tick_high).add(count * 2);
  run.ticked_count = static_cast<std::uint16_t>(run.ticked_count + count);
}

void BlockColumns::add_addresses(const Tile& tile) {
  BlockRun& run = runs_.back();
  std::uint8_t* const knowns = knowns_.data() + run.event_count;
  std::byte* const backs = plane(Plane::back).make_room(tile.events + 1);
  std::array<std::uint64_t, kTileEvents + 1> differences;
  std::size_t known = 0;
  std::uint64_t last_address = last_address_, seen = 0;
  std::uint32_t event = recent_.event;
  for (std::size_t i = 0; i < tile.events; ++i) {
    const std::uint64_t address = tile.addresses[i];
    const auto hash = static_cast<std::size_t>((address * 0x9e3779b97f4a7c15) >> (64 - Recent::kHashBits));
    const std::uint32_t back = event - recent_.event_at[hash] - 1;
    const std::uint32_t is_known =
        static_cast<std::uint32_t>(back < kRecentEvents) & static_cast<std::uint32_t>(recent_.address[hash] == address);
    recent_.event_at[hash] = event++;
    recent_.address[hash] = address;
    const std::int64_t distance = static_cast<std::int64_t>(address - last_address) >> kAddressUnitBits;
    const std::uint64_t zigzag = static_cast<std::uint64_t>(distance) << 1 ^ static_cast<std::uint64_t>(distance >> 63);
    differences[i - known] = zigzag;
    seen |= zigzag & (std::uint64_t{is_known} - 1);
    backs[known] = static_cast<std::byte>(back);
    knowns[i] = static_cast<std::uint8_t>(is_known);
    known += is_known;
    last_address = address;
  }
  last_address_ = last_address;
  recent_.event = event;
  const std::size_t others = tile.events - known;
  cut(others, seen, plane(Plane::near_0).make_room(others), plane(Plane::near_1).make_room(others), nullptr,
      [&](std::size_t i) { return differences[i]; });
  cut(others, seen >> 16, plane(Plane::far_0).make_room(others), plane(Plane::far_1).make_room(others),
      plane(Plane::far_high).make_room(others * 2), [&](std::size_t i) { return differences[i] >> 16; });
  plane(Plane::back).add(known);
  for (const Plane number : {Plane::near_0, Plane::near_1, Plane::far_0, Plane::far_1}) plane(number).add(others);
  plane(Plane::far_high).add(others * 2);
  run.known_count = static_cast<std::uint16_t>(run.known_count + known);
}

void BlockColumns::add_allocations(const Tile& tile) {
  const std::size_t count = tile.allocations;
  const auto& values = tile.sizes_and_stacks;
  const auto rotated = [&](std::size_t i) {
    const auto size = static_cast<std::uint32_t>(values[i]);
    return size >> kSizeRotation | size << (16 - kSizeRotation);
  };
  std::uint64_t seen = 0;
  std::uint32_t seen_sizes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    seen |= values[i];
    seen_sizes |= rotated(i);
  }
  cut(count, seen_sizes, plane(Plane::size_0).make_room(count), plane(Plane::size_1).make_room(count), nullptr,
      rotated);
  cut(count, seen >> 32, plane(Plane::stack_0).make_room(count), plane(Plane::stack_1).make_room(count),
      plane(Plane::stack_high).make_room(count * 2), [&](std::size_t i) { return values[i] >> 32; });
  for (const Plane number : {Plane::size_0, Plane::size_1, Plane::stack_0, Plane::stack_1}) plane(number).add(count);
  plane(Plane::stack_high).add(count * 2);
  runs_.back().allocate_count = static_cast<std::uint16_t>(runs_.back().allocate_count + count);
}

std::size_t BlockColumns::take_events(std::span<const std::byte> bytes, LeaseProgress& progress) {
  const std::uint64_t stored = ~((std::uint64_t{1} << tick_shift_) - 1);
  BlockRun& run = runs_.back();
  Tile tile;  // not initialized
  std::size_t taken = 0;
  do {
    read_tile(bytes.subspan(taken), tile);
    if (tile.events == 0) break;
    if (run.event_count == 0) run.first_ticks = (progress.ticks + tile.ticks[0]) & stored;
    add_ticks(tile, progress.ticks);
    add_addresses(tile);
    add_allocations(tile);
    run.last_ticks = progress.ticks & stored;
    run.event_count = static_cast<std::uint16_t>(run.event_count + tile.events);
    event_count_ += tile.events;
    taken += tile.bytes;
  } while (tile.events == kTileEvents);
  run.bytes += static_cast<std::uint32_t>(taken);
  progress.offset += static_cast<std::uint32_t>(taken);
  return taken;
}

std::size_t BlockColumns::take(std::span<const std::byte> bytes, const Source& source, LeaseProgress& progress) {
  std::size_t taken = 0;
  while (bytes.size() - taken >= sizeof(CompactRelease)) {
    const auto rest = bytes.subspan(taken);
    const auto kind = load<RecordKind>(rest.data() + offsetof(CompactRelease, kind));
    const std::uint32_t before = progress.offset;
    if (kind == RecordKind::clock) {
      if (!take_clock(rest, source, progress)) break;
    } else if (kind == RecordKind::compact_allocate || kind == RecordKind::compact_release) {
      if (!progress.timed || progress.offset > trace::kChunkBytes || rest.size() > trace::kChunkBytes - progress.offset)
        break;
      if (!goes_on(progress)) begin_run(source, progress, 0);
      if (take_events(rest, progress) == 0) break;
    } else {
      break;
    }
    taken += progress.offset - before;
  }
  return taken;
}

void BlockColumns::skip(std::uint32_t size_bytes, LeaseProgress& progress) {
  if (goes_on(progress) && size_bytes % kGapUnit == 0 && size_bytes >= sizeof(trace::RecordHeader) &&
      size_bytes <= trace::kChunkBytes - progress.offset) {
    BlockRun& run = runs_.back();
    const BlockGap gap{.event = run.event_count, .units = static_cast<std::uint16_t>(size_bytes / kGapUnit)};
    std::memcpy(plane(Plane::gap).make_room(sizeof gap), &gap, sizeof gap);
    plane(Plane::gap).add(sizeof gap);
    ++run.gap_count;
    run.bytes += size_bytes;
  }
  progress.offset += size_bytes;
}

std::size_t BlockColumns::payload_bytes() const {
  std::size_t bytes = sizeof(BlocksHeader) + runs_.size() * sizeof(BlockRun);
  for (const Plane bits : {Plane::kind, Plane::known, Plane::ticked})
    if (open_) bytes += full_plane_bytes(runs_.back(), bits);
  for (const Bytes& plane : planes_) bytes += plane.size();
  return bytes;
}

std::vector<std::byte> BlockColumns::take_payload() {
  close_run();
  std::vector<std::byte> payload;
  payload.reserve(payload_bytes());
  const auto append = [&](const void* from, std::size_t bytes) {
    const auto* first = static_cast<const std::byte*>(from);
    payload.insert(payload.end(), first, first + bytes);
  };
  const BlocksHeader header{.run_count = static_cast<std::uint32_t>(runs_.size()), .tick_shift = tick_shift_};
  append(&header, sizeof header);
  append(runs_.data(), runs_.size() * sizeof(BlockRun));
  for (Bytes& plane : planes_) {
    append(plane.data(), plane.size());
    plane.cut_back(0);
  }
  runs_.clear();
  event_count_ = 0;
  return payload;
}

}  // namespace whyrss
