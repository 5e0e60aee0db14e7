// Stack records, read from the recording on request: stacks are asked for nearly in the order in which they were
// described, so the frames that were read last are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "decode/bytes.h"
#include "decode/stack_places.h"
#include "recording/frame_file.h"

namespace whyrss {

class StackStore {
 public:
  // The record of stack `id` in that frame, the first that was written at `from_ns` or later: a frame into which an
  // exec falls may hold two. Empty: it is not there, or cannot be read. Valid until the next call.
  Bytes read(const FrameFile& file, std::uint32_t frame, std::uint32_t id, std::uint64_t from_ns);
  // Each record of a run by itself.
  void visit(const FrameFile& file, const StackRun& run, const std::function<void(const StackRun&)>& visit);

 private:
  struct Place {
    std::uint32_t id, at, size_bytes;  // in the payload
    std::uint64_t time_ns;
  };
  using Key = std::pair<const FrameFile*, std::uint32_t>;
  struct Loaded {
    Key key;
    PayloadBuffer buffer;
    Bytes payload;
    std::vector<Place> places;  // by id
  };
  Loaded& load(const Key& key);
  void make_room();

  std::list<Loaded> loaded_;  // the one that was used last comes first
  std::map<Key, std::list<Loaded>::iterator> by_key_;
  std::size_t loaded_bytes_ = 0;
};

}  // namespace whyrss
