// The doorbell's thread turns a ring into a readable descriptor.
#include "collect/loop/doorbell.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

namespace whyrss::doorbell_test {
namespace {

TEST(Doorbell, RingMakesItsDescriptorReadable) {
  const std::uint64_t bytes = trace::pool_bytes(2, 2);
  void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapping, MAP_FAILED);
  {
    const trace::PoolView pool = trace::format_pool(mapping, 2, 2, {});
    Doorbell doorbell(pool);
    ASSERT_EQ(doorbell.error(), 0);
    pollfd entry{.fd = doorbell.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&entry, 1, 0), 0);
    for (int ring = 0; ring < 3; ++ring) {
      trace::ring_doorbell(pool);
      ASSERT_EQ(poll(&entry, 1, 60'000), 1);
      doorbell.clear();
    }
  }
  munmap(mapping, bytes);
}

}  // namespace
}  // namespace whyrss::doorbell_test
