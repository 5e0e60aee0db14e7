// The slices of an account. A long recording of exact mode has thousands of accounts with 100,000 slices each: once it
// is complete, an account packs its slices into some 6 bytes each, which iterating unpacks one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/cause.h"
#include "model/name_pool.h"
#include "model/slice.h"

namespace whyrss {

class SliceList {
 public:
  class Iterator;

  SliceList() = default;
  SliceList(std::vector<Slice> slices) : open_(std::move(slices)) {}  // NOLINT: they are one
  SliceList(std::initializer_list<Slice> slices) : open_(slices) {}
  SliceList(const SliceList& other);
  SliceList& operator=(const SliceList& other) { return *this = SliceList(other); }
  SliceList(SliceList&&) noexcept = default;
  SliceList& operator=(SliceList&&) noexcept = default;
  ~SliceList() = default;

  // To be changed; unpacks them.
  [[nodiscard]] std::vector<Slice>& open();
  // Names of mappings go into `names`, which other lists share; without, into those of an earlier packing.
  void pack(std::shared_ptr<NamePool> names = nullptr);
  // Packs what is added from now on to an empty list.
  void begin_packing(std::shared_ptr<NamePool> names);
  void add(const Slice& slice);

  [[nodiscard]] Iterator begin() const;
  [[nodiscard]] static std::default_sentinel_t end() { return std::default_sentinel; }
  [[nodiscard]] std::size_t size() const { return is_packed_ ? packed_count_ : open_.size(); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  struct Sum {
    std::int64_t bytes = 0, exclusive_bytes = 0;
    std::size_t count = 0;
  };
  [[nodiscard]] Sum sum_of(Cause cause) const;
  // Those before it are unpacked too.
  [[nodiscard]] Slice operator[](std::size_t index) const;

 private:
  // What a slice has in common with many.
  struct Place {
    Cause cause;
    const std::string* mapping;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  std::vector<Slice> open_;
  bool is_packed_ = false;
  std::shared_ptr<NamePool> names_;  // of `places_`
  std::vector<Place> places_;
  std::vector<std::uint8_t> packed_;
  std::size_t packed_count_ = 0;
  std::array<Sum, kCauseCount> sums_{};  // of those that are packed
  // While they are added.
  struct Packing {
    std::map<Place, std::size_t> numbers;
    std::size_t last_place = 0;
    StackId last_stack = kEmptyStack;
    std::int64_t last_bytes = 0;
  };
  std::unique_ptr<Packing> packing_;
};

// Refers to the list's own slice, or to one of its own that was unpacked: which is valid until the next step.
class SliceList::Iterator {
 public:
  // NOLINTBEGIN(readability-identifier-naming): as the standard library calls them
  using iterator_concept = std::input_iterator_tag;
  using value_type = Slice;
  using difference_type = std::ptrdiff_t;
  // NOLINTEND(readability-identifier-naming)

  Iterator() = default;
  explicit Iterator(const SliceList& list);
  const Slice& operator*() const { return list_->is_packed_ ? unpacked_ : list_->open_[at_]; }
  const Slice* operator->() const { return &**this; }
  // Of the slice's site; valid as long as the list.
  [[nodiscard]] const std::string& mapping() const {
    return list_->is_packed_ ? *list_->places_[place_].mapping : list_->open_[at_].site.mapping;
  }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  friend bool operator==(const Iterator& iterator, std::default_sentinel_t) {
    return iterator.at_ == iterator.list_->size();
  }

 private:
  void unpack();
  std::uint64_t take_number();
  std::int64_t take_difference();
  double take_double();

  const SliceList* list_ = nullptr;
  std::size_t at_ = 0, byte_ = 0, place_ = 0;
  Slice unpacked_;
};

inline SliceList::Iterator SliceList::begin() const { return Iterator(*this); }

}  // namespace whyrss
