#include "support/zstd_bytes.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <memory>
#include <new>

#include "support/result.h"

namespace whyrss {
namespace {

// False where it is an error of another kind.
bool is_size(std::size_t result) {
  if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) throw std::bad_alloc();
  return ZSTD_isError(result) == 0;
}

}  // namespace

std::size_t most_compressed_bytes(std::size_t bytes) { return ZSTD_compressBound(bytes); }

// Making a context for each call would cost more than a small frame.
std::size_t compress(std::span<const std::byte> from, std::span<std::byte> to, int level) {
  thread_local const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  if (context == nullptr) throw std::bad_alloc();
  const std::size_t size = ZSTD_compressCCtx(context.get(), to.data(), to.size(), from.data(), from.size(), level);
  require(is_size(size), "there is room for what is compressed");
  return size;
}

std::optional<std::size_t> decompress(std::span<const std::byte> from, std::span<std::byte> to) {
  thread_local const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  if (context == nullptr) throw std::bad_alloc();
  const std::size_t size = ZSTD_decompressDCtx(context.get(), to.data(), to.size(), from.data(), from.size());
  return is_size(size) ? std::optional(size) : std::nullopt;
}

}  // namespace whyrss
