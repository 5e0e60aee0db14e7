// The records of one process in the order of their times, but for its stacks and its compact records. Of a long job
// there are millions, which are read one after the other: they are kept packed, each as its difference to the one of
// its kind before it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "decode/event_stream.h"

namespace whyrss {

class RecordList {
 public:
  class Iterator;

  RecordList() = default;
  // Of records by time. Their bytes are not needed afterwards.
  explicit RecordList(const std::vector<EventRecord>& records);

  [[nodiscard]] std::size_t size() const { return count_; }
  // Valid until records of two other parts of the list were asked for.
  const EventRecord& operator[](std::size_t index) const;
  // Valid as long as it is held.
  [[nodiscard]] std::shared_ptr<const EventRecord> at(std::size_t index) const;
  [[nodiscard]] bool has(trace::RecordKind kind) const { return count_of(kind) > 0; }
  [[nodiscard]] std::size_t count_of(trace::RecordKind kind) const { return kinds_.at(place_of(kind)); }
  // The first one at `time_ns` or later.
  [[nodiscard]] std::size_t first_at(std::uint64_t time_ns) const;

  // They were played; a few of them may be asked for again.
  void release() { unpacked_ = {}; }

  [[nodiscard]] Iterator begin() const;
  [[nodiscard]] static std::default_sentinel_t end() { return std::default_sentinel; }

 private:
  static constexpr std::size_t kRecordsPerPart = 512, kKinds = 64;
  struct Packed {
    std::uint64_t first_ns = 0;
    std::size_t raw_bytes = 0;
    std::string bytes;
  };
  struct Part {
    std::size_t number = 0;
    std::vector<std::byte> bytes;
    std::vector<EventRecord> records;
  };
  // Of kinds that this version does not know all together.
  static std::size_t place_of(trace::RecordKind kind) {
    return static_cast<std::size_t>(kind) < kKinds ? static_cast<std::size_t>(kind) : kKinds - 1;
  }
  void pack(const EventRecord* first, const EventRecord* last);
  [[nodiscard]] const std::shared_ptr<const Part>& part(std::size_t number) const;
  [[nodiscard]] std::shared_ptr<const Part> unpack(std::size_t number) const;

  std::vector<Packed> packed_;
  std::size_t count_ = 0;
  std::array<std::size_t, kKinds> kinds_{};  // how many of each
  // Where it is played, and where it is read ahead: the one that was used last comes first.
  mutable std::array<std::shared_ptr<const Part>, 2> unpacked_;
};

class RecordList::Iterator {
 public:
  // NOLINTBEGIN(readability-identifier-naming): as the standard library calls them
  using iterator_concept = std::input_iterator_tag;
  using value_type = EventRecord;
  using difference_type = std::ptrdiff_t;
  // NOLINTEND(readability-identifier-naming)

  Iterator() = default;
  explicit Iterator(const RecordList& list) : list_(&list) {}
  const EventRecord& operator*() const { return (*list_)[at_]; }
  Iterator& operator++() {
    ++at_;
    return *this;
  }
  void operator++(int) { ++at_; }
  friend bool operator==(const Iterator& iterator, std::default_sentinel_t) {
    return iterator.at_ == iterator.list_->size();
  }

 private:
  const RecordList* list_ = nullptr;
  std::size_t at_ = 0;
};

inline RecordList::Iterator RecordList::begin() const { return Iterator(*this); }

}  // namespace whyrss
