#include "pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <new>

#include "clock.h"
#include "own_calls.h"

namespace whyrss::trace {
namespace {

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

struct Layout {
  std::uint64_t slots, chunk_headers, chunks, total;
};

constexpr Layout layout_of(std::uint32_t chunk_count, std::uint32_t slot_count) {
  Layout layout{};
  layout.slots = sizeof(PoolHeader);
  layout.chunk_headers = layout.slots + std::uint64_t{slot_count} * sizeof(ProcessSlot);
  layout.chunks = align_up(layout.chunk_headers + std::uint64_t{chunk_count} * sizeof(ChunkHeader), 4096);
  layout.total = layout.chunks + std::uint64_t{chunk_count} * kChunkBytes;
  return layout;
}

PoolView view_of(void* mapping, const Layout& layout) noexcept {
  auto* base = static_cast<std::byte*>(mapping);
  return {.header = reinterpret_cast<PoolHeader*>(base),
          .slots = reinterpret_cast<ProcessSlot*>(base + layout.slots),
          .chunks = reinterpret_cast<ChunkHeader*>(base + layout.chunk_headers),
          .data = base + layout.chunks};
}

// The free list: index + 1 in the low half, a tag against ABA in the high half.
void push_free(PoolView pool, std::uint32_t index) noexcept {
  ChunkHeader& chunk = pool.chunks[index];
  std::uint64_t head = pool.header->free_head.load(std::memory_order_relaxed);
  std::uint64_t next = 0;
  do {
    chunk.next_free.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    next = ((head >> 32) + 1) << 32 | (index + 1);
  } while (
      !pool.header->free_head.compare_exchange_weak(head, next, std::memory_order_release, std::memory_order_relaxed));
}

std::uint32_t pop_free(PoolView pool) noexcept {
  std::uint64_t head = pool.header->free_head.load(std::memory_order_acquire);
  while (true) {
    const auto link = static_cast<std::uint32_t>(head);
    if (link == 0 || link > pool.header->chunk_count) return UINT32_MAX;
    const std::uint32_t after = pool.chunks[link - 1].next_free.load(std::memory_order_relaxed);
    const std::uint64_t next = ((head >> 32) + 1) << 32 | after;
    if (pool.header->free_head.compare_exchange_weak(head, next, std::memory_order_acquire, std::memory_order_acquire))
      return link - 1;
  }
}

// One that was bare, now with its space; the caller owns it. Up to `most` that follow each other get theirs in one
// call, the others are free then.
std::uint32_t reserve_chunk(PoolView pool, std::uint32_t most) noexcept {
  const std::uint32_t count = pool.header->chunk_count;
  const std::uint32_t bare = pool.header->bare_chunks.load(std::memory_order_relaxed);
  if (bare == 0 || bare > count) return UINT32_MAX;
  const auto claim = [pool](std::uint32_t index) {
    ChunkState expected = ChunkState::bare;
    return pool.chunks[index].state.compare_exchange_strong(expected, ChunkState::reserving);
  };
  for (std::uint32_t step = 0; step < count; ++step) {
    const std::uint32_t index = (count - bare + step) % count;
    if (!claim(index)) continue;
    std::uint32_t end = index + 1;
    while (end < count && end - index < most && claim(end)) ++end;
    const bool reserved = reserve_pages(pool.data + std::size_t{index} * kChunkBytes, (end - index) * kChunkBytes);
    if (reserved) pool.header->bare_chunks.fetch_sub(end - index);
    for (std::uint32_t other = end; --other > index;) {
      pool.chunks[other].state.store(reserved ? ChunkState::free : ChunkState::bare, std::memory_order_release);
      if (reserved) push_free(pool, other);
    }
    if (reserved) return index;
    pool.chunks[index].state.store(ChunkState::bare);
    if (most == 1) return UINT32_MAX;
    return reserve_chunk(pool, 1);
  }
  return UINT32_MAX;
}

// Where there is no space it is not asked for at each record that is dropped.
constexpr std::uint32_t kDropsBetween = 1000;
constinit std::atomic<std::uint32_t> g_drops_left{0};

std::uint32_t reserve_for_writer(PoolView pool, std::uint32_t most = 1) noexcept {
  if (pool.header->bare_chunks.load(std::memory_order_relaxed) == 0) return UINT32_MAX;
  if (is_kernel_closed()) return UINT32_MAX;
  if (const std::uint32_t left = g_drops_left.load(std::memory_order_relaxed); left > 0) {
    g_drops_left.store(left - 1, std::memory_order_relaxed);
    return UINT32_MAX;
  }
  const int saved_errno = errno;
  const std::uint32_t index = reserve_chunk(pool, most);
  if (index == UINT32_MAX) g_drops_left.store(kDropsBetween, std::memory_order_relaxed);
  errno = saved_errno;
  return index;
}

bool take_chunk(const Writer& writer, Lease& lease) noexcept {
  std::uint32_t index = pop_free(writer.pool);
  if (index == UINT32_MAX) index = reserve_for_writer(writer.pool);
  if (index == UINT32_MAX) return false;
  ChunkHeader& chunk = writer.pool.chunks[index];
  chunk.pid = writer.pid;
  chunk.tid = writer.tid;
  chunk.start_ticks = writer.start_ticks;
  chunk.slot = writer.slot;
  chunk.lost_before = lease.lost;
  chunk.committed.store(0, std::memory_order_relaxed);
  chunk.drained.store(0, std::memory_order_relaxed);
  chunk.claimed.store(0, std::memory_order_relaxed);
  chunk.lease.store(writer.pool.header->next_lease.fetch_add(1, std::memory_order_relaxed) + 1,
                    std::memory_order_relaxed);
  chunk.state.store(ChunkState::leased, std::memory_order_release);
  lease = {.chunk = &chunk, .data = writer.pool.data + std::size_t{index} * kChunkBytes};
  return true;
}

bool reader_lives(const PoolHeader& header, std::uint64_t now) noexcept {
  const std::uint64_t beat_ns = header.reader_beat_ns.load(std::memory_order_relaxed);
  return header.reader_pid.load(std::memory_order_relaxed) != 0 && !is_reader_dead(header) &&
         (beat_ns >= now || now - beat_ns <= kReaderGoneNs);
}

// Exact mode, and no chunk is free. The reader is rung for again and again: it may have been about to sleep. Where no
// system call may be made this spins until the reader comes by itself.
bool wait_for_chunk(const Writer& writer, Lease& lease) noexcept {
  static constinit std::atomic<std::uint64_t> tired_until_ns{0};
  constexpr long kStepNs = 200'000;
  if (does_clock_stand_still()) return false;
  const std::uint64_t begin_ns = now_ns();
  if (begin_ns < tired_until_ns.load(std::memory_order_relaxed) || !reader_lives(*writer.pool.header, begin_ns))
    return false;
  if (writer.slot < writer.pool.header->slot_count)
    writer.pool.slots[writer.slot].waits.fetch_add(1, std::memory_order_relaxed);
  bool taken = false;
  for (std::uint64_t now = begin_ns;
       !taken && now - begin_ns < kLongestWaitNs && reader_lives(*writer.pool.header, now); now = now_ns()) {
    ring_doorbell(writer.pool);
    const timespec step{.tv_sec = 0, .tv_nsec = kStepNs};
    own_syscall(SYS_nanosleep, as_long(&step));
    taken = take_chunk(writer, lease);
  }
  if (!taken) tired_until_ns.store(now_ns() + kLongestWaitNs, std::memory_order_relaxed);
  return taken;
}

// Exact mode fills chunks faster than the reader comes by itself.
void note_crowd(PoolView pool) noexcept {
  const std::uint32_t crowd = std::min(kCrowdedChunks, pool.header->chunk_count / 8 + 1);
  if (pool.header->sealed_chunks.fetch_add(1, std::memory_order_relaxed) + 1 == crowd) ring_doorbell(pool);
}

void count_drop(const Writer& writer, Lease& lease, std::size_t size_bytes) noexcept {
  ++lease.lost;
  writer.pool.header->dropped_records.fetch_add(1, std::memory_order_relaxed);
  writer.pool.header->dropped_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
  if (writer.slot < writer.pool.header->slot_count)
    writer.pool.slots[writer.slot].dropped_records.fetch_add(1, std::memory_order_relaxed);
}

std::uint32_t find_slot(PoolView pool, std::uint32_t pid, std::uint64_t start_ticks) noexcept {
  const std::uint32_t count = pool.header->slot_count;
  const std::uint32_t farthest = pool.header->farthest_slot.load(std::memory_order_acquire);
  for (std::uint32_t step = 0; step <= farthest && step < count; ++step) {
    const std::uint32_t index = (pid + step) % count;
    const ProcessSlot& slot = pool.slots[index];
    if (slot.state.load(std::memory_order_acquire) == SlotState::live && slot.pid == pid &&
        slot.start_ticks == start_ticks)
      return index;
  }
  return kNoSlot;
}

}  // namespace

std::uint64_t pool_bytes(std::uint32_t chunk_count, std::uint32_t slot_count) noexcept {
  return layout_of(chunk_count, slot_count).total;
}

std::uint64_t reserved_bytes(std::uint32_t chunk_count, std::uint32_t slot_count, std::uint32_t bare_chunks) noexcept {
  return layout_of(chunk_count, slot_count).total - std::uint64_t{bare_chunks} * kChunkBytes;
}

bool reserve_pages(void* address, std::size_t size_bytes) noexcept {
  constexpr long kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14
  const long result = own_syscall(SYS_madvise, as_long(address), static_cast<long>(size_bytes), kPopulateWrite);
  if (result != 0) errno = static_cast<int>(-result);
  return result == 0;
}

void keep_free(PoolView pool, std::uint32_t wanted) noexcept {
  auto link = static_cast<std::uint32_t>(pool.header->free_head.load(std::memory_order_acquire));
  for (std::uint32_t found = 0; link != 0 && link <= pool.header->chunk_count;) {
    if (++found >= wanted) return;
    link = pool.chunks[link - 1].next_free.load(std::memory_order_relaxed);
  }
  constexpr std::uint32_t kAtOnce = 8;
  const std::uint32_t index = reserve_for_writer(pool, kAtOnce);
  if (index == UINT32_MAX) return;
  pool.chunks[index].state.store(ChunkState::free, std::memory_order_release);
  push_free(pool, index);
}

bool add_chunks(PoolView pool, std::uint32_t count) noexcept {
  for (; count > 0 && pool.header->bare_chunks.load(std::memory_order_relaxed) > 0; --count) {
    const std::uint32_t index = reserve_chunk(pool, 1);
    if (index == UINT32_MAX) return pool.header->bare_chunks.load() == 0;
    pool.chunks[index].state.store(ChunkState::free, std::memory_order_release);
    push_free(pool, index);
  }
  return true;
}

PoolView format_pool(void* mapping, std::uint32_t chunk_count, std::uint32_t slot_count, SessionId session,
                     std::uint32_t bare_chunks) noexcept {
  const Layout layout = layout_of(chunk_count, slot_count);
  const PoolView pool = view_of(mapping, layout);
  auto* header = new (pool.header) PoolHeader{};
  header->version = kPoolVersion;
  header->header_bytes = sizeof(PoolHeader);
  header->session = session;
  header->chunk_bytes = kChunkBytes;
  header->chunk_count = chunk_count;
  header->slot_count = slot_count;
  header->slots_offset = layout.slots;
  header->chunk_headers_offset = layout.chunk_headers;
  header->chunks_offset = layout.chunks;
  header->total_bytes = layout.total;
  header->large_block_bytes = kLargeBlockBytes;
  header->bare_chunks = bare_chunks;
  header->reader_offsets = own_time_offsets();
  header->readers_wall = wall_distances(nullptr);
  for (std::uint32_t index = chunk_count; index > chunk_count - bare_chunks; --index)
    pool.chunks[index - 1].state.store(ChunkState::bare, std::memory_order_relaxed);
  for (std::uint32_t index = chunk_count - bare_chunks; index > 0; --index) push_free(pool, index - 1);
  // Last: a half-formatted pool is not a pool.
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(header->magic.data()), std::bit_cast<std::uint64_t>(kPoolMagic),
                   __ATOMIC_RELEASE);
  return pool;
}

PoolView open_pool(void* mapping, std::uint64_t size_bytes) noexcept {
  if (mapping == nullptr || size_bytes < sizeof(PoolHeader)) return {};
  const auto* header = static_cast<const PoolHeader*>(mapping);
  if (header->magic != kPoolMagic || header->version != kPoolVersion || header->header_bytes != sizeof(PoolHeader))
    return {};
  const std::uint32_t chunk_count = header->chunk_count;
  const std::uint32_t slot_count = header->slot_count;
  if (chunk_count == 0 || chunk_count > (1U << 20) || slot_count == 0 || slot_count > (1U << 20)) return {};
  const Layout layout = layout_of(chunk_count, slot_count);
  const bool same = header->chunk_bytes == kChunkBytes && header->slots_offset == layout.slots &&
                    header->chunk_headers_offset == layout.chunk_headers && header->chunks_offset == layout.chunks &&
                    header->total_bytes == layout.total;
  if (!same || layout.total > size_bytes) return {};
  return view_of(mapping, layout);
}

std::uint32_t claim_slot(PoolView pool, std::uint32_t pid, std::uint64_t start_ticks) noexcept {
  if (!pool) return kNoSlot;
  // An exec keeps the process and so its slot, though one before that may have been freed since.
  if (const std::uint32_t own = find_slot(pool, pid, start_ticks); own != kNoSlot) return own;
  const std::uint32_t count = pool.header->slot_count;
  for (std::uint32_t step = 0; step < count; ++step) {
    const std::uint32_t index = (pid + step) % count;
    ProcessSlot& slot = pool.slots[index];
    SlotState expected = SlotState::free;
    if (!slot.state.compare_exchange_strong(expected, SlotState::claimed, std::memory_order_acquire)) continue;
    slot.pid = pid;
    slot.start_ticks = start_ticks;
    for (auto* counter :
         {&slot.walked_rss_pages, &slot.dropped_records, &slot.small_allocations, &slot.small_allocated_bytes,
          &slot.small_releases, &slot.large_allocations, &slot.stacks_truncated, &slot.liveness, &slot.waits})
      counter->store(0, std::memory_order_relaxed);
    slot.walks_missed.store(0, std::memory_order_relaxed);
    slot.forks.store(0, std::memory_order_relaxed);
    slot.walked_minor_faults.store(0, std::memory_order_relaxed);
    slot.walked_live_kib.store(0, std::memory_order_relaxed);
    slot.walk_request.store(0, std::memory_order_relaxed);
    slot.stats_request.store(0, std::memory_order_relaxed);
    slot.walked_ms.store(0, std::memory_order_relaxed);
    slot.live_bytes.store(0, std::memory_order_relaxed);
    slot.walk_done.store(0, std::memory_order_relaxed);
    std::uint32_t farthest = pool.header->farthest_slot.load(std::memory_order_relaxed);
    while (farthest < step && !pool.header->farthest_slot.compare_exchange_weak(farthest, step)) {
    }
    slot.state.store(SlotState::live, std::memory_order_release);
    return index;
  }
  pool.header->refused_slots.fetch_add(1, std::memory_order_relaxed);
  return kNoSlot;
}

void ring_doorbell(PoolView pool) noexcept {
  if (!pool) return;
  pool.header->doorbell.fetch_add(1, std::memory_order_release);
  own_syscall(SYS_futex, as_long(&pool.header->doorbell), FUTEX_WAKE, INT_MAX);
}

bool is_reader_dead(const PoolHeader& header) noexcept {
  return (header.reader_life.load(std::memory_order_relaxed) & FUTEX_OWNER_DIED) != 0;
}

std::byte* reserve(const Writer& writer, Lease& lease, std::size_t size_bytes) noexcept {
  if (!writer.pool) return nullptr;
  const std::uint32_t size = padded(size_bytes);
  if (size_bytes > kChunkBytes) {
    count_drop(writer, lease, size_bytes);
    return nullptr;
  }
  if (lease.chunk != nullptr && lease.used + size <= kChunkBytes) return lease.data + lease.used;
  const bool was_full = lease.chunk != nullptr;
  seal(lease);
  if (was_full && writer.is_exact) note_crowd(writer.pool);
  if (!take_chunk(writer, lease) && !(writer.is_exact && wait_for_chunk(writer, lease))) {
    count_drop(writer, lease, size);
    return nullptr;
  }
  return lease.data;
}

void seal(Lease& lease) noexcept {
  if (lease.chunk == nullptr) return;
  lease.chunk->state.store(ChunkState::sealed, std::memory_order_release);
  lease = {.lost = lease.lost};
}

namespace {

// What is published of a chunk, and will not be taken back. For a moment a writer may publish less than what was
// claimed before: it is about to find that out. What was claimed stays so.
std::uint32_t claim(ChunkHeader& chunk) noexcept {
  const std::uint32_t before = chunk.claimed.load(std::memory_order_relaxed);
  const std::uint32_t wanted = chunk.committed.load(std::memory_order_acquire);
  if (wanted <= before) return before;
  chunk.claimed.store(wanted, std::memory_order_seq_cst);
  const std::uint32_t now = std::max(before, chunk.committed.load(std::memory_order_seq_cst));
  if (now >= wanted) return wanted;
  chunk.claimed.store(now, std::memory_order_release);
  return now;
}

}  // namespace

Segment next_segment(PoolView pool, std::uint32_t index) noexcept {
  Segment segment;
  segment.chunk_index = index;
  ChunkHeader& chunk = pool.chunks[index];
  const ChunkState state = chunk.state.load(std::memory_order_acquire);
  if (state != ChunkState::leased && state != ChunkState::sealed) return segment;
  const std::uint32_t committed = claim(chunk);
  const std::uint32_t drained = chunk.drained.load(std::memory_order_relaxed);
  if (committed > kChunkBytes || drained > committed) return segment;  // scribbled
  segment.lease = chunk.lease.load(std::memory_order_relaxed);
  segment.offset = drained;
  segment.bytes = {pool.data + std::size_t{index} * kChunkBytes + drained, committed - drained};
  segment.pid = chunk.pid;
  segment.tid = chunk.tid;
  segment.start_ticks = chunk.start_ticks;
  segment.lost_before = chunk.lost_before;
  segment.sealed = state == ChunkState::sealed;
  return segment;
}

void finish_segment(PoolView pool, const Segment& segment, bool owner_gone) noexcept {
  ChunkHeader& chunk = pool.chunks[segment.chunk_index];
  const auto end = segment.offset + static_cast<std::uint32_t>(segment.bytes.size());
  chunk.drained.store(end, std::memory_order_release);
  if (!segment.sealed && !owner_gone) return;
  // Sealed was read before `committed`, so nothing more can be published behind `end`.
  if (chunk.committed.load(std::memory_order_acquire) != end) return;
  chunk.state.store(ChunkState::free, std::memory_order_release);
  push_free(pool, segment.chunk_index);
}

}  // namespace whyrss::trace
