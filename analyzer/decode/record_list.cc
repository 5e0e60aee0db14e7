#include "decode/record_list.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <protozero/varint.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "support/result.h"

namespace whyrss {
namespace {

// Records of up to so many words of 8 bytes are packed as differences: those that a recording may have millions of.
constexpr std::size_t kMostWords = 8;
using Words = std::array<std::uint64_t, kMostWords>;

// What the next record is a difference to.
struct Before {
  std::uint64_t lease = 0, offset = 0;
  std::array<Words, 64> words{};  // of the last record of each kind

  Words& of(std::uint64_t kind) { return words[kind % words.size()]; }
};

bool has_words(std::uint64_t bytes) { return bytes % sizeof(std::uint64_t) == 0 && bytes <= sizeof(Words); }

class Packer {
 public:
  void add(const EventRecord& record) {
    const std::size_t bytes = record.bytes.size(), at = used_;
    constexpr std::size_t kMostVarints = 4 + kMostWords;
    packed_.resize(std::max(packed_.size(), at + kMostVarints * protozero::max_varint_length + bytes));
    add_number(static_cast<std::uint64_t>(record.kind));
    add_number(bytes);
    add_difference(record.lease, before_.lease);
    add_difference(record.offset, before_.offset);
    if (has_words(bytes)) {
      Words words{};
      std::memcpy(words.data(), record.bytes.data(), bytes);
      Words& before = before_.of(static_cast<std::uint64_t>(record.kind));
      for (std::size_t i = 0; i < bytes / sizeof words[0]; ++i) add_difference(words[i], before[i]);
    } else {
      std::memcpy(packed_.data() + used_, record.bytes.data(), bytes);
      used_ += bytes;
    }
  }
  [[nodiscard]] std::string take() && {
    packed_.resize(used_);
    packed_.shrink_to_fit();
    return std::move(packed_);
  }

 private:
  void add_number(std::uint64_t number) { used_ += protozero::add_varint_to_buffer(packed_.data() + used_, number); }
  void add_difference(std::uint64_t number, std::uint64_t& before) {
    add_number(protozero::encode_zigzag64(static_cast<std::int64_t>(number - std::exchange(before, number))));
  }

  Before before_;
  std::string packed_;  // its first `used_` bytes
  std::size_t used_ = 0;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view packed) : at_(packed.data()), end_(packed.data() + packed.size()) {}

  // Its bytes are put where `room` begins.
  EventRecord next(std::span<std::byte> room) {
    const std::uint64_t kind = take_number(), bytes = take_number();
    take_difference(before_.lease);
    take_difference(before_.offset);
    require(bytes <= room.size(), "records come back as long as they were");
    if (has_words(bytes)) {
      Words& words = before_.of(kind);
      for (std::size_t i = 0; i < bytes / sizeof words[0]; ++i) take_difference(words[i]);
      std::memcpy(room.data(), words.data(), bytes);
    } else {
      std::memcpy(room.data(), at_, bytes);
      at_ += bytes;
    }
    EventRecord record{.kind = static_cast<trace::RecordKind>(kind),
                       .offset = static_cast<std::uint32_t>(before_.offset),
                       .lease = before_.lease,
                       .bytes = room.first(bytes)};
    trace::RecordHeader header{};
    require(read_record(record, header), "a record has a header");
    record.time_ns = header.time_ns;
    return record;
  }

 private:
  std::uint64_t take_number() { return protozero::decode_varint(&at_, end_); }
  void take_difference(std::uint64_t& number) {
    number += static_cast<std::uint64_t>(protozero::decode_zigzag64(take_number()));
  }

  Before before_;
  const char* at_;
  const char* end_;
};

}  // namespace

RecordList::RecordList(const std::vector<EventRecord>& records) : count_(records.size()) {
  const EventRecord* const end = records.data() + records.size();
  for (const EventRecord* at = records.data(); at != end;) {
    const EventRecord* const next = at + std::min<std::ptrdiff_t>(kRecordsPerPart, end - at);
    pack(at, next);
    at = next;
  }
}

void RecordList::pack(const EventRecord* first, const EventRecord* last) {
  Packer packer;
  std::size_t raw_bytes = 0;
  for (const EventRecord* record = first; record != last; ++record) {
    ++kinds_.at(place_of(record->kind));
    packer.add(*record);
    raw_bytes += record->bytes.size();
  }
  packed_.push_back({first->time_ns, raw_bytes, std::move(packer).take()});
}

std::shared_ptr<const RecordList::Part> RecordList::unpack(std::size_t number) const {
  const Packed& packed = packed_.at(number);
  auto part = std::make_shared<Part>();
  part->number = number;
  part->bytes.resize(packed.raw_bytes);
  const std::size_t count = std::min(kRecordsPerPart, count_ - number * kRecordsPerPart);
  part->records.reserve(count);
  Unpacker unpacker(packed.bytes);
  for (std::span<std::byte> room = part->bytes; part->records.size() < count;) {
    const EventRecord& record = part->records.emplace_back(unpacker.next(room));
    room = room.subspan(record.bytes.size());
  }
  return part;
}

const std::shared_ptr<const RecordList::Part>& RecordList::part(std::size_t number) const {
  if (unpacked_[0] != nullptr && unpacked_[0]->number == number) return unpacked_[0];
  std::swap(unpacked_[0], unpacked_[1]);
  if (unpacked_[0] == nullptr || unpacked_[0]->number != number) unpacked_[0] = unpack(number);
  return unpacked_[0];
}

const EventRecord& RecordList::operator[](std::size_t index) const {
  return part(index / kRecordsPerPart)->records[index % kRecordsPerPart];
}

std::shared_ptr<const EventRecord> RecordList::at(std::size_t index) const {
  const std::shared_ptr<const Part>& of = part(index / kRecordsPerPart);
  return {of, &of->records[index % kRecordsPerPart]};
}

std::size_t RecordList::first_at(std::uint64_t time_ns) const {
  const auto after = std::ranges::lower_bound(packed_, time_ns, {}, &Packed::first_ns);
  if (after == packed_.begin()) return 0;
  const auto number = static_cast<std::size_t>(after - packed_.begin()) - 1;
  const auto& records = part(number)->records;
  const auto found = std::ranges::lower_bound(records, time_ns, {}, &EventRecord::time_ns);
  return number * kRecordsPerPart + static_cast<std::size_t>(found - records.begin());
}

}  // namespace whyrss
