// event_order EVENTS: reads an events.zst of exact mode and merges its threads as reports do. Prints "N events, N out
// of order": allocations of an address that is live, and releases of one that was allocated and is not.
#include <cstdint>
#include <cstdio>
#include <limits>
#include <unordered_map>

#include "decode/block_merge.h"
#include "decode/process_input.h"

namespace {

class OrderSink final : public whyrss::BlockMerge::Sink {
 public:
  void apply(std::span<const whyrss::BlockEvent> events, std::uint32_t) override {
    for (const whyrss::BlockEvent& event : events) {
      ++seen;
      const auto found = is_live_.find(event.address);
      if (found != is_live_.end() && found->second != event.is_release()) ++out_of_order;
      if (found != is_live_.end() || !event.is_release()) is_live_[event.address] = !event.is_release();
    }
  }

  std::uint64_t seen = 0, out_of_order = 0;

 private:
  std::unordered_map<std::uint64_t, bool> is_live_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 2) return 2;
  auto file = whyrss::read_frame_file(arguments[1]);
  if (!file) return 3;
  whyrss::ProcessInput input;
  input.events = std::move(*file);
  input.open_events();
  const auto records = input.stream.records();
  whyrss::BlockMerge merge(input.events, input.stream, records);
  OrderSink sink;
  merge.advance(std::numeric_limits<std::uint64_t>::max(), records.size(), sink);
  std::printf("%llu events, %llu out of order\n", static_cast<unsigned long long>(sink.seen),
              static_cast<unsigned long long>(sink.out_of_order));
}
