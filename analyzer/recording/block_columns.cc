#include "recording/block_columns.h"

#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace whyrss {
namespace {

using trace::ClockRecord;
using trace::CompactAllocate;
using trace::CompactRelease;
using trace::RecordKind;

constexpr unsigned kTickShift = 1, kAddressShift = 3, kSizeShift = 5, kStackShift = 6;
constexpr std::uint8_t kRelease = 1;
constexpr std::uint8_t kGap = 0xe1;  // release, and bits 5 to 7
constexpr std::array<std::uint8_t, 4> kTickBytes{0, 1, 2, 4}, kAddressBytes{1, 2, 3, 6}, kStackBytes{0, 1, 2, 4};
constexpr unsigned kAddressUnitBits = 3;
constexpr std::uint64_t kAddressUnit = 1U << kAddressUnitBits;
constexpr std::uint32_t kSmallest = sizeof(CompactRelease);

// Two readings of one clock, with an interruption in between, are not further apart; those of two clocks are.
constexpr std::uint64_t kSameTimeNs = 10'000'000;

// Of one event at most, over all planes.
constexpr std::size_t kMostValueBytes = 8;
constexpr std::size_t kMostEvents = trace::kChunkBytes / kSmallest;

struct Lengths {
  std::uint8_t tick, address, size, stack;
};

constexpr Lengths lengths_of(std::uint8_t tag) {
  Lengths lengths{kTickBytes[(tag >> kTickShift) & 3], kAddressBytes[(tag >> kAddressShift) & 3], 0, 0};
  if ((tag & kGap) == kGap) lengths.address = 0;
  if ((tag & kRelease) != 0) return lengths;
  lengths.size = static_cast<std::uint8_t>(1 + ((tag >> kSizeShift) & 1));
  lengths.stack = kStackBytes[tag >> kStackShift];
  return lengths;
}

constexpr std::array<Lengths, 256> make_lengths() {
  std::array<Lengths, 256> table{};
  for (unsigned tag = 0; tag < 256; ++tag) table[tag] = lengths_of(static_cast<std::uint8_t>(tag));
  return table;
}
constexpr std::array<Lengths, 256> kLengths = make_lengths();

constexpr std::array<std::uint64_t, 9> kMasks{
    0, 0xff, 0xffff, 0xffffff, 0xffffffff, 0xffffffffff, 0xffffffffffff, 0xffffffffffffff, ~std::uint64_t{0}};

// By the number of bits that a value has.
constexpr std::array<std::uint8_t, 65> codes(const std::array<std::uint8_t, 4>& bytes) {
  std::array<std::uint8_t, 65> table{};
  for (unsigned bits = 0; bits <= 64; ++bits) {
    unsigned code = 0;
    while (code < 3 && bits > bytes[code] * 8U) ++code;
    table[bits] = static_cast<std::uint8_t>(code);
  }
  return table;
}
constexpr auto kTickCodes = codes(kTickBytes);
constexpr auto kAddressCodes = codes({0, 2, 3, 6});  // code 0 is taken
constexpr auto kStackCodes = codes(kStackBytes);

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

std::uint64_t take_value(const std::byte*& from, std::uint8_t bytes) {
  const std::uint64_t value = load<std::uint64_t>(from) & kMasks[bytes];
  from += bytes;
  return value;
}

}  // namespace

void BlockColumns::Plane::make_room(std::size_t more) {
  if (bytes.size() < used + more) bytes.resize((used + more) * 2);
}

bool BlockColumns::goes_on(const LeaseProgress& progress) const {
  return open_ && runs_.back().lease == progress.lease && runs_.back().offset + runs_.back().bytes == progress.offset;
}

void BlockColumns::begin_run(const Source& source, const LeaseProgress& progress, std::uint64_t clock_ns) {
  close_run();
  runs_.push_back({.lease = progress.lease,
                   .clock_ns = clock_ns,
                   .base_ticks = progress.ticks,
                   .first_ticks = progress.ticks,
                   .last_ticks = progress.ticks,
                   .offset = progress.offset,
                   .bytes = 0,
                   .tid = source.tid,
                   .lost_before = source.lost_before,
                   .tag_count = 0,
                   .tick_bytes = 0,
                   .address_bytes = 0,
                   .size_bytes = 0,
                   .stack_bytes = 0,
                   .reserved = 0});
  for (std::size_t i = 0; i < kColumnCount; ++i) run_begin_[i] = planes_[i].used;
  last_address_ = 0;
  last_stack_ = 0;
  recent_.event += kRecentAddresses;  // no reference reaches into the run before
  open_ = true;
  run_has_events_ = false;
}

void BlockColumns::add_clock(std::uint64_t time_ns, std::uint64_t ticks) {
  const LeaseProgress nowhere{.lease = 0, .offset = 0, .timed = true, .ticks = ticks_are_ns_ ? time_ns : ticks};
  begin_run({}, nowhere, time_ns);
  close_run();
}

void BlockColumns::close_run() {
  if (!open_) return;
  BlockRun& run = runs_.back();
  const auto bytes = [&](std::size_t column) {
    return static_cast<std::uint32_t>(planes_[column].used - run_begin_[column]);
  };
  run.tag_count = bytes(kTags);
  run.tick_bytes = bytes(kTicks);
  run.address_bytes = bytes(kAddresses);
  run.size_bytes = bytes(kSizes);
  run.stack_bytes = bytes(kStacks);
  open_ = false;
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

// The hot loop: everything that it changes per event is in registers.
std::size_t BlockColumns::take_events(std::span<const std::byte> bytes, LeaseProgress& progress) {
  for (Plane& plane : planes_) plane.make_room((kMostEvents + 1) * kMostValueBytes);
  std::array<std::byte*, kColumnCount> to{};
  for (std::size_t i = 0; i < kColumnCount; ++i) to[i] = planes_[i].bytes.data() + planes_[i].used;
  auto [tags, tick_to, address_to, size_to, stack_to] = to;
  BlockRun& run = runs_.back();
  std::uint64_t ticks = progress.ticks, last_address = last_address_;
  std::uint32_t event = recent_.event;
  std::uint32_t last_stack = last_stack_;
  const std::byte* const begin = bytes.data();
  const std::byte* const end = begin + bytes.size();
  const std::byte* at = begin;
  while (end - at >= static_cast<std::ptrdiff_t>(kSmallest)) {
    // Copied once: what is checked is what is used. An allocation's first 16 bytes are as a release's.
    const auto record = load<CompactRelease>(at);
    const bool releases = record.kind == RecordKind::compact_release && record.record_bytes == sizeof(CompactRelease);
    const bool allocates = record.kind == RecordKind::compact_allocate &&
                           record.record_bytes == sizeof(CompactAllocate) &&
                           end - at >= static_cast<std::ptrdiff_t>(sizeof(CompactAllocate));
    const std::uint64_t address = std::uint64_t{record.address_high} << 32 | record.address_low;
    if (!(releases || allocates) || address % kAddressUnit != 0) break;
    const auto size_and_stack = allocates ? load<std::uint64_t>(at + offsetof(CompactAllocate, size_bytes)) : 0;
    const auto size = static_cast<std::uint32_t>(size_and_stack);
    if (size > 0xffff) break;

    const std::int64_t distance = static_cast<std::int64_t>(address - last_address) >> kAddressUnitBits;
    const std::uint64_t zigzag = static_cast<std::uint64_t>(distance) << 1 ^ static_cast<std::uint64_t>(distance >> 63);
    std::uint32_t& event_at = recent_.event_at[(address * 0x9e3779b97f4a7c15) >> (64 - Recent::kHashBits)];
    const std::uint32_t back = event - event_at;
    const bool is_recent = back < kRecentAddresses && recent_.addresses[event_at % kRecentAddresses] == address;
    event_at = event;
    recent_.addresses[event++ % kRecentAddresses] = address;
    const std::uint8_t tick_code = kTickCodes[static_cast<std::size_t>(std::bit_width(record.ticks_since))];
    const std::uint8_t address_code =
        is_recent ? 0 : kAddressCodes[static_cast<std::size_t>(std::bit_width(zigzag | 1))];
    store(tick_to, record.ticks_since);
    tick_to += kTickBytes[tick_code];
    store(address_to, is_recent ? back : zigzag);
    address_to += kAddressBytes[address_code];
    auto tag = static_cast<std::uint8_t>(tick_code << kTickShift | address_code << kAddressShift);
    if (allocates) {
      const auto stack = static_cast<std::uint32_t>(size_and_stack >> 32);
      // Id 0 is rare; as the one before it takes no byte, else one.
      const std::uint8_t stack_code =
          stack == last_stack ? 0 : kStackCodes[static_cast<std::size_t>(std::bit_width(stack | 1))];
      const std::uint8_t size_code = size > 0xff ? 1 : 0;
      store(size_to, static_cast<std::uint16_t>(size));
      size_to += 1 + size_code;
      store(stack_to, stack);
      stack_to += kStackBytes[stack_code];
      last_stack = stack;
      tag = static_cast<std::uint8_t>(tag | size_code << kSizeShift | stack_code << kStackShift);
    } else {
      tag |= kRelease;
    }
    store(tags++, tag);
    ticks += record.ticks_since;
    last_address = address;
    if (!run_has_events_) run.first_ticks = ticks;
    run_has_events_ = true;
    at += allocates ? sizeof(CompactAllocate) : sizeof(CompactRelease);
  }
  to = {tags, tick_to, address_to, size_to, stack_to};
  event_count_ += static_cast<std::uint64_t>(tags - (planes_[kTags].bytes.data() + planes_[kTags].used));
  for (std::size_t i = 0; i < kColumnCount; ++i)
    planes_[i].used = static_cast<std::size_t>(to[i] - planes_[i].bytes.data());
  last_address_ = last_address;
  last_stack_ = last_stack;
  recent_.event = event;
  run.last_ticks = progress.ticks = ticks;
  const auto taken = static_cast<std::uint32_t>(at - begin);
  run.bytes += taken;
  progress.offset += taken;
  return taken;
}

std::size_t BlockColumns::take(std::span<const std::byte> bytes, const Source& source, LeaseProgress& progress) {
  std::size_t taken = 0;
  while (bytes.size() - taken >= kSmallest) {
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
  if (goes_on(progress) && size_bytes % kAddressUnit == 0 && size_bytes <= trace::kChunkBytes) {
    planes_[kTags].make_room(kMostValueBytes);
    planes_[kTicks].make_room(kMostValueBytes);
    const auto units = static_cast<std::uint32_t>(size_bytes / kAddressUnit);
    const std::uint8_t code = kTickCodes[static_cast<std::size_t>(std::bit_width(units))];
    store(planes_[kTags].bytes.data() + planes_[kTags].used++, static_cast<std::uint8_t>(kGap | code << kTickShift));
    store(planes_[kTicks].bytes.data() + planes_[kTicks].used, units);
    planes_[kTicks].used += kTickBytes[code];
    runs_.back().bytes += size_bytes;
  }
  progress.offset += size_bytes;
}

std::size_t BlockColumns::payload_bytes() const {
  std::size_t bytes = sizeof(BlocksHeader) + runs_.size() * sizeof(BlockRun);
  for (const Plane& plane : planes_) bytes += plane.used;
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
  const BlocksHeader header{.run_count = static_cast<std::uint32_t>(runs_.size()), .reserved = 0};
  append(&header, sizeof header);
  append(runs_.data(), runs_.size() * sizeof(BlockRun));
  for (Plane& plane : planes_) append(plane.bytes.data(), std::exchange(plane.used, 0));
  runs_.clear();
  event_count_ = 0;
  return payload;
}

std::size_t runs_bytes(std::span<const std::byte> front) {
  if (front.size() < sizeof(BlocksHeader)) return 0;
  const auto header = load<BlocksHeader>(front.data());
  return sizeof header + std::size_t{header.run_count} * sizeof(BlockRun);
}

bool read_runs(std::span<const std::byte> front, std::size_t payload_bytes, std::vector<BlockRun>& runs,
               std::vector<RunPlace>& places) {
  const std::size_t needed = runs_bytes(front);
  if (needed == 0 || needed > front.size() || payload_bytes > std::numeric_limits<std::uint32_t>::max()) return false;
  runs.resize((needed - sizeof(BlocksHeader)) / sizeof(BlockRun));
  places.resize(runs.size());
  if (!runs.empty()) std::memcpy(runs.data(), front.data() + sizeof(BlocksHeader), runs.size() * sizeof(BlockRun));
  std::uint64_t at = needed;
  for (std::size_t plane = 0; plane < RunPlace{}.begin.size(); ++plane) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const BlockRun& run = runs[i];
      const std::array bytes{run.tag_count, run.tick_bytes, run.address_bytes, run.size_bytes, run.stack_bytes};
      places[i].begin[plane] = static_cast<std::uint32_t>(at);
      at += bytes[plane];
      if (at > payload_bytes) return false;
    }
  }
  for (const BlockRun& run : runs) {
    const bool fits = run.offset <= trace::kChunkBytes && run.bytes <= trace::kChunkBytes - run.offset;
    if (!fits || run.tag_count > kMostEvents) return false;
  }
  return at == payload_bytes;
}

bool RunDecoder::begin(std::span<const std::byte> payload, const BlockRun& run, const RunPlace& place,
                       std::uint32_t from_offset) {
  const std::byte* base = payload.data();
  tag_ = base + place.begin[0];
  tags_end_ = tag_ + run.tag_count;
  tick_ = base + place.begin[1];
  address_ = base + place.begin[2];
  size_ = base + place.begin[3];
  stack_ = base + place.begin[4];
  ticks_ = run.base_ticks;
  last_address_ = 0;
  last_stack_ = 0;
  offset_ = run.offset + (run.clock_ns != 0 ? static_cast<std::uint32_t>(sizeof(ClockRecord)) : 0);
  from_offset_ = from_offset;
  event_ = 0;
  recent_ = {};
  // Afterwards no value can lie outside of its plane.
  std::uint32_t ticks = 0, addresses = 0, sizes = 0, stacks = 0;
  for (const std::byte* tag = tag_; tag < tags_end_; ++tag) {
    const Lengths& lengths = kLengths[std::to_integer<std::size_t>(*tag)];
    ticks += lengths.tick;
    addresses += lengths.address;
    sizes += lengths.size;
    stacks += lengths.stack;
  }
  const bool fits =
      ticks == run.tick_bytes && addresses == run.address_bytes && sizes == run.size_bytes && stacks == run.stack_bytes;
  if (!fits) tag_ = tags_end_;
  return fits;
}

// All that changes per event is in registers.
std::size_t RunDecoder::read(std::span<BlockEvent> out) {
  const std::byte *tag_at = tag_, *tick_at = tick_, *address_at = address_, *size_at = size_, *stack_at = stack_;
  std::uint64_t ticks = ticks_, last_address = last_address_;
  std::uint32_t last_stack = last_stack_, offset = offset_, event = event_;
  const std::uint32_t from_offset = from_offset_;
  BlockEvent* to = out.data();
  BlockEvent* const to_end = to + out.size();
  while (tag_at < tags_end_ && to < to_end) {
    const auto tag = std::to_integer<std::uint8_t>(*tag_at++);
    const Lengths lengths = kLengths[tag];
    const std::uint64_t since = take_value(tick_at, lengths.tick);
    if ((tag & kGap) == kGap) {
      offset += static_cast<std::uint32_t>(since * kAddressUnit);
      continue;
    }
    ticks += since;
    const std::uint64_t value = take_value(address_at, lengths.address);
    const std::uint64_t recent = recent_[(event - value) % kRecentAddresses];
    const std::uint64_t moved = last_address + ((value >> 1) ^ (0 - (value & 1))) * kAddressUnit;
    // Which of them it is nobody can predict: no branch.
    const std::uint64_t is_recent = 0 - static_cast<std::uint64_t>((tag >> kAddressShift & 3) == 0);
    last_address = moved ^ ((moved ^ recent) & is_recent);
    recent_[event++ % kRecentAddresses] = last_address;
    const bool releases = (tag & kRelease) != 0;
    const auto size = static_cast<std::uint32_t>(take_value(size_at, lengths.size));
    const auto stack = static_cast<std::uint32_t>(take_value(stack_at, lengths.stack));
    last_stack = lengths.stack == 0 ? last_stack : stack;
    *to = {ticks, last_address, releases ? BlockEvent::kReleased : size, last_stack};
    to += offset >= from_offset ? 1 : 0;
    offset += static_cast<std::uint32_t>(releases ? sizeof(CompactRelease) : sizeof(CompactAllocate));
  }
  tag_ = tag_at;
  tick_ = tick_at;
  address_ = address_at;
  size_ = size_at;
  stack_ = stack_at;
  ticks_ = ticks;
  last_address_ = last_address;
  last_stack_ = last_stack;
  offset_ = offset;
  event_ = event;
  return static_cast<std::size_t>(to - out.data());
}

}  // namespace whyrss
