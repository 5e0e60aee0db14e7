#include "load/live_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "load/pool_place.h"
#include "shim/trace/pool.h"
#include "support/clock.h"

namespace whyrss {
namespace {

constexpr std::int64_t kLongestNs = 500'000'000;
constexpr useconds_t kAgainUs = 1000;

bool is_served(const trace::PoolHeader& pool, std::uint32_t request) {
  return static_cast<std::int32_t>(pool.stored_request.load(std::memory_order_acquire) - request) >= 0;
}

}  // namespace

std::optional<std::uint64_t> store_published(const Manifest& manifest) {
  const auto name = shared_pool_name(manifest);
  const auto shared_memory = name ? open_shared_memory() : Result<Folder>(Error{});
  const auto known = shared_memory ? open_pool(*shared_memory, *name) : Result<Fd>(Error{});
  if (!known) return std::nullopt;
  const Fd file(open(fmt::format("/proc/self/fd/{}", known->get()).c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 || status.st_size <= 0) return std::nullopt;
  const auto mapping = Mapping::of(file, static_cast<std::size_t>(status.st_size), *name);
  const trace::PoolView pool =
      mapping ? trace::open_pool(mapping->address(), mapping->size_bytes()) : trace::PoolView{};
  if (!pool) return std::nullopt;
  const std::uint32_t request = pool.header->store_request.fetch_add(1) + 1;
  trace::ring_doorbell(pool);
  for (const std::int64_t until_ns = monotonic_ns() + kLongestNs; monotonic_ns() < until_ns; usleep(kAgainUs))
    if (is_served(*pool.header, request)) return pool.header->stored_ns.load(std::memory_order_relaxed);
  return std::nullopt;
}

}  // namespace whyrss
