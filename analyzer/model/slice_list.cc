// Per slice: a byte that says which of its figures are there, the number of its place, and its figures as
// variable-length numbers, where they can be as differences: slices come largest first, and of one size by their
// stacks.
#include "model/slice_list.h"

#include <bit>
#include <cstring>
#include <utility>

namespace whyrss {
namespace {

// What is there of a slice.
constexpr unsigned kExclusive = 1;  // all of it is; else the number of bytes follows
constexpr unsigned kVariance = 2, kHuge = 4, kUntouched = 8, kTouched = 16, kAdvised = 32, kLargeBlock = 64;
constexpr unsigned kShared = 128;  // none of it is exclusive
// And of who touched it.
constexpr unsigned kHasVariance = 1, kByKernel = 2;

std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
std::int64_t from_zigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

std::int64_t difference(StackId stack, StackId before) {
  return std::int64_t{static_cast<std::uint32_t>(stack)} - std::int64_t{static_cast<std::uint32_t>(before)};
}
StackId moved(StackId before, std::int64_t by) {
  return StackId{static_cast<std::uint32_t>(static_cast<std::uint32_t>(before) + static_cast<std::uint64_t>(by))};
}

class Packer {
 public:
  explicit Packer(std::vector<std::uint8_t>& bytes) : bytes_(&bytes) {}

  void add(std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) bytes_->push_back(static_cast<std::uint8_t>(number | 0x80));
    bytes_->push_back(static_cast<std::uint8_t>(number));
  }
  void add_difference(std::int64_t value) { add(zigzag(value)); }
  void add_double(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const std::size_t at = bytes_->size();
    bytes_->resize(at + sizeof bits);
    std::memcpy(bytes_->data() + at, &bits, sizeof bits);
  }

 private:
  std::vector<std::uint8_t>* bytes_;
};

std::uint8_t flags_of(const Slice& slice) {
  unsigned flags = 0;
  if (slice.exclusive_bytes == slice.bytes)
    flags |= kExclusive;
  else if (slice.exclusive_bytes == 0)
    flags |= kShared;
  if (std::bit_cast<std::uint64_t>(slice.variance) != 0) flags |= kVariance;
  if (slice.huge_bytes != 0) flags |= kHuge;
  if (slice.untouched_bytes != 0) flags |= kUntouched;
  if (!slice.touched.empty()) flags |= kTouched;
  if (!slice.advised.empty()) flags |= kAdvised;
  if (slice.site.in_large_block) flags |= kLargeBlock;
  return static_cast<std::uint8_t>(flags);
}

std::uint64_t share_flags_of(const TouchShare& share) {
  std::uint64_t flags = 0;
  if (share.variance != 0) flags |= kHasVariance;
  if (share.by_kernel) flags |= kByKernel;
  return flags;
}

}  // namespace

SliceList::SliceList(const SliceList& other)
    : open_(other.open_),
      is_packed_(other.is_packed_),
      names_(other.names_),
      places_(other.places_),
      packed_(other.packed_),
      packed_count_(other.packed_count_),
      sums_(other.sums_) {}

void SliceList::begin_packing(std::shared_ptr<NamePool> names) {
  names_ = std::move(names);
  is_packed_ = true;
  packing_ = std::make_unique<Packing>();
}

void SliceList::pack(std::shared_ptr<NamePool> names) {
  if (!is_packed_) {
    const std::vector<Slice> slices = std::exchange(open_, {});
    if (names == nullptr) names = names_ != nullptr ? names_ : std::make_shared<NamePool>();
    begin_packing(std::move(names));
    for (const Slice& slice : slices) add(slice);
  }
  packing_.reset();
  packed_.shrink_to_fit();
  places_.shrink_to_fit();
}

void SliceList::add(const Slice& slice) {
  Packing& packing = *packing_;
  const bool goes_on = !places_.empty() && places_[packing.last_place].cause == slice.site.cause &&
                       *places_[packing.last_place].mapping == slice.site.mapping;
  if (!goes_on) {
    const Place place{slice.site.cause, names_->keep(slice.site.mapping)};
    const auto [known, is_new] = packing.numbers.try_emplace(place, places_.size());
    if (is_new) places_.push_back(place);
    packing.last_place = known->second;
  }
  const std::uint8_t flags = flags_of(slice);
  Packer packer(packed_);
  packed_.push_back(flags);
  packer.add(packing.last_place);
  packer.add_difference(difference(slice.site.stack, packing.last_stack));
  packer.add_difference(packing.last_bytes - slice.bytes);
  if ((flags & (kExclusive | kShared)) == 0) packer.add_difference(slice.exclusive_bytes);
  if ((flags & kVariance) != 0) packer.add_double(slice.variance);
  if ((flags & kHuge) != 0) packer.add_difference(slice.huge_bytes);
  if ((flags & kUntouched) != 0) packer.add_difference(slice.untouched_bytes);
  if ((flags & kTouched) != 0) packer.add(slice.touched.size());
  for (const TouchShare& share : slice.touched) {
    packer.add(share_flags_of(share));
    packer.add_difference(difference(share.stack, slice.site.stack));
    packer.add_difference(share.bytes);
    if (share.variance != 0) packer.add_double(share.variance);
  }
  if ((flags & kAdvised) != 0) packer.add(slice.advised.size());
  for (const AdviceShare& share : slice.advised) {
    packer.add_difference(difference(share.stack, slice.site.stack));
    packer.add_difference(share.bytes);
  }
  packing.last_stack = slice.site.stack;
  packing.last_bytes = slice.bytes;
  ++packed_count_;
  Sum& sum = sums_.at(static_cast<std::size_t>(slice.site.cause));
  sum.bytes += slice.bytes;
  sum.exclusive_bytes += slice.exclusive_bytes;
  ++sum.count;
}

std::vector<Slice>& SliceList::open() {
  if (!is_packed_) return open_;
  std::vector<Slice> slices;
  slices.reserve(packed_count_);
  for (const Slice& slice : *this) slices.push_back(slice);
  std::shared_ptr<NamePool> names = std::move(names_);
  *this = SliceList(std::move(slices));
  names_ = std::move(names);
  return open_;
}

SliceList::Sum SliceList::sum_of(Cause cause) const {
  if (is_packed_) return sums_.at(static_cast<std::size_t>(cause));
  Sum sum;
  for (const Slice& slice : open_) {
    if (slice.site.cause != cause) continue;
    sum.bytes += slice.bytes;
    sum.exclusive_bytes += slice.exclusive_bytes;
    ++sum.count;
  }
  return sum;
}

Slice SliceList::operator[](std::size_t index) const {
  if (!is_packed_) return open_.at(index);
  Iterator at(*this);
  while (index-- > 0) ++at;
  return *at;
}

SliceList::Iterator::Iterator(const SliceList& list) : list_(&list) {
  if (list.is_packed_ && !list.empty()) unpack();
}

SliceList::Iterator& SliceList::Iterator::operator++() {
  ++at_;
  if (list_->is_packed_ && at_ < list_->packed_count_) unpack();
  return *this;
}

std::uint64_t SliceList::Iterator::take_number() {
  const std::uint8_t* const bytes = list_->packed_.data();
  std::uint64_t number = bytes[byte_] & 0x7f;
  for (unsigned shift = 7; (bytes[byte_++] & 0x80) != 0; shift += 7)
    number |= std::uint64_t{bytes[byte_] & 0x7fU} << shift;
  return number;
}

std::int64_t SliceList::Iterator::take_difference() { return from_zigzag(take_number()); }

double SliceList::Iterator::take_double() {
  std::uint64_t bits = 0;
  std::memcpy(&bits, list_->packed_.data() + byte_, sizeof bits);
  byte_ += sizeof bits;
  return std::bit_cast<double>(bits);
}

// What is there of the slice before counts where differences are packed.
void SliceList::Iterator::unpack() {
  Slice& slice = unpacked_;
  const std::uint8_t flags = list_->packed_[byte_++];
  place_ = take_number();
  const Place& place = list_->places_[place_];
  slice.site.cause = place.cause;
  if (slice.site.mapping != *place.mapping) slice.site.mapping = *place.mapping;
  slice.site.in_large_block = (flags & kLargeBlock) != 0;
  slice.site.stack = moved(slice.site.stack, take_difference());
  slice.bytes -= take_difference();
  if ((flags & kExclusive) != 0)
    slice.exclusive_bytes = slice.bytes;
  else
    slice.exclusive_bytes = (flags & kShared) != 0 ? 0 : take_difference();
  slice.variance = (flags & kVariance) != 0 ? take_double() : 0;
  slice.huge_bytes = (flags & kHuge) != 0 ? take_difference() : 0;
  slice.untouched_bytes = (flags & kUntouched) != 0 ? take_difference() : 0;
  slice.touched.resize((flags & kTouched) != 0 ? take_number() : 0);
  for (TouchShare& share : slice.touched) {
    const std::uint64_t kind = take_number();
    share.by_kernel = (kind & kByKernel) != 0;
    share.stack = moved(slice.site.stack, take_difference());
    share.bytes = take_difference();
    share.variance = (kind & kHasVariance) != 0 ? take_double() : 0;
  }
  slice.advised.resize((flags & kAdvised) != 0 ? take_number() : 0);
  for (AdviceShare& share : slice.advised) {
    share.stack = moved(slice.site.stack, take_difference());
    share.bytes = take_difference();
  }
}

}  // namespace whyrss
