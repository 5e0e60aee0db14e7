// The shared memory between the traced process tree and its collector: one file mapping, many writers
// (the threads of all traced processes), one reader (the collector, or `report` after a kill).
//
//   [PoolHeader 4 KiB][ProcessSlot x slot_count][ChunkHeader x chunk_count][chunk x chunk_count]
//
// Life of a chunk
//     bare ──reserve──▶ free ──a thread takes it──▶ leased ──full, or its thread left──▶ sealed ──drained──▶ free
//                   A leased chunk is appended to; each record is published by a release store of `committed`. The list
//                   of free chunks is LIFO, so that a drained chunk is still in cache.
//                   The last record may be taken back while the reader has not claimed it (retract).
// After SIGKILL     whatever was published stays readable: of the writer, of the reader, of both. The
//                   reader advances `drained` only after the bytes are in the recording; segments
//                   carry (lease, offset), so what was written twice is recognised.
// When full         the record is dropped and counted; a writer never allocates. In exact mode it waits before, at
//                   most kLongestWaitNs and while the reader lives; after a wait in vain, as long again without one.
// Trust             each side assumes that the other scribbles: positions are copied once and checked.
// Ownership         the collector creates the file and removes it; the shim maps it and never unmaps.
// Threads           PoolWriter: any thread and signal handler, but one Lease belongs to one thread.
//                   PoolReader: one thread.
// Space             a full disk never becomes SIGBUS: nothing is stored where no space is reserved. The creator
//                   reserves all but the later chunks, which are `bare`. A writer that needs one more reserves it first
//                   (MADV_POPULATE_WRITE) and then owns it; the reader keeps some ready, so that writers rarely have
//                   to.
//
// Chunks are 16 KiB, not larger: a lease costs ~0.1 us, once per ~400 records, and a process tree of a
// thousand threads still fits into 16 MiB.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "time_namespace.h"
#include "trace_format.h"

namespace whyrss::trace {

inline constexpr std::array<char, 8> kPoolMagic{'w', 'h', 'y', 'p', 'o', 'o', 'l', '\n'};
inline constexpr std::uint32_t kPoolVersion = 4;
inline constexpr std::uint32_t kChunkBytes = 16 * 1024;
inline constexpr std::uint32_t kDefaultChunkCount = 1024;
inline constexpr std::uint32_t kDefaultSlotCount = 1024;
inline constexpr std::uint64_t kReaderGoneNs = 2'000'000'000;
inline constexpr std::uint64_t kLongestWaitNs = 1'000'000'000;
// In exact mode the reader is woken for this many full chunks, or an eighth of the pool.
inline constexpr std::uint32_t kCrowdedChunks = 16;
// The reader keeps so many chunks free, as long as there are bare ones.
inline constexpr std::uint32_t kReadyChunks = 8;
inline constexpr std::uint32_t kNoSlot = 0xffffffff;

struct SessionId {
  std::uint64_t high, low;
  friend bool operator==(const SessionId&, const SessionId&) = default;
};

struct alignas(4096) PoolHeader {
  std::array<char, 8> magic;
  std::uint32_t version, header_bytes;
  SessionId session;
  std::uint32_t chunk_bytes, chunk_count, slot_count, reserved;
  std::uint64_t slots_offset, chunk_headers_offset, chunks_offset, total_bytes;
  std::uint64_t large_block_bytes;                   // kLargeBlockBytes of the creator
  alignas(64) std::atomic<std::uint64_t> free_head;  // tag << 32 | (chunk index + 1), 0 = empty
  alignas(64) std::atomic<std::uint64_t> next_lease;
  alignas(64) std::atomic<std::uint32_t> doorbell;  // futex: writers add 1 and wake the reader
  std::atomic<std::uint32_t> reader_pid;            // 0: none
  // CLOCK_MONOTONIC of the reader's last round (some 100 ms apart); older than kReaderGoneNs: no reader is left.
  std::atomic<std::uint64_t> reader_beat_ns;
  // Full chunks of exact mode since the reader's last round, which sets it to 0.
  std::atomic<std::uint32_t> sealed_chunks;
  std::atomic<std::uint32_t> bare_chunks;                  // the last ones
  alignas(64) std::atomic<std::uint64_t> dropped_records;  // by all processes, no chunk was free
  std::atomic<std::uint64_t> dropped_bytes;
  std::atomic<std::uint64_t> refused_slots;  // processes that found no slot
  // Of a socket (AF_UNIX, SOCK_SEQPACKET) of the collector that takes the userfaultfd of each process that forked or
  // was forked: one message of 8 bytes, its start_ticks, with the descriptor. Ends with NUL; empty: none is wanted.
  std::array<char, 108> handover_path;
  std::uint32_t seccomp_filters;  // of the collector, which may do what is asked of the processes there
  TimeOffsets reader_offsets;     // all times of the recording are those of its time namespace
  // (reader) A robust futex that it holds while it lives: when it dies, however, the kernel sets FUTEX_OWNER_DIED
  // (set_robust_list(2)).
  std::atomic<std::uint32_t> reader_life;
  // A process that wants to read the recording while it is made adds 1 and rings the doorbell.
  std::atomic<std::uint32_t> store_request;
  // (reader) The request that it has served: all events published at `stored_ns` (CLOCK_MONOTONIC) are stored. 0 in
  // pools of older versions.
  std::atomic<std::uint32_t> stored_request;
  std::atomic<std::uint64_t> stored_ns;
  WallDistances readers_wall;  // when the pool was made
  // By so many places the farthest slot lies behind the one that its pid names: an exec searches so far for its own.
  std::atomic<std::uint32_t> farthest_slot;
};

enum class SlotState : std::uint32_t { free = 0, claimed = 1, live = 2 };

// One traced process. Written by the process, but for the fields marked (reader).
struct alignas(128) ProcessSlot {
  std::atomic<SlotState> state;
  std::uint32_t pid;
  std::uint64_t start_ticks;
  std::atomic<std::uint32_t> walk_request;  // + 1 asks for a page walk now (snapshot, exit)
  // (reader) = the request it has served; futex. Who gives up waiting sets it to its own, if it is the next.
  std::atomic<std::uint32_t> walk_done;
  std::atomic<std::uint64_t> walked_rss_pages;     // (reader) RSS of the last walk
  std::atomic<std::uint32_t> walked_minor_faults;  // (reader) minor faults of the process at that walk, modulo 2^32
  std::atomic<std::uint32_t> walked_live_kib;      // (reader) live_bytes before it, modulo 2^32 KiB
  std::atomic<std::uint64_t> dropped_records;
  std::atomic<std::uint64_t> small_allocations;  // blocks that were counted: small ones, and larger ones beyond a rate
  std::atomic<std::uint64_t> small_allocated_bytes;
  std::atomic<std::uint64_t> small_releases;
  std::atomic<std::uint64_t> large_allocations;
  std::atomic<std::uint64_t> stacks_truncated;  // distinct stacks of which deeper frames were cut off
  std::atomic<std::uint32_t> walks_missed;      // asked for, and not done in time
  std::atomic<std::uint32_t> forks;             // begun: counted before the kernel makes any page shared
  std::atomic<std::uint64_t> liveness;          // address of its LivenessTable (liveness_format.h); 0: none
  std::atomic<std::uint64_t> waits;             // events of exact mode that waited for the reader
  std::atomic<std::uint32_t> stats_request;     // (reader) + 1 asks for the allocator's own counters when it is safe
  std::atomic<std::uint32_t> walked_ms;         // (reader) CLOCK_MONOTONIC of the last walk, modulo 2^32
  std::atomic<std::int64_t> live_bytes;         // allocated less released since it attached, where sizes are counted
};

// bare: no space is reserved for it; reserving: a thread is at that, and will own it or put it on the free list.
enum class ChunkState : std::uint32_t { free = 0, leased = 1, sealed = 2, bare = 3, reserving = 4 };

struct alignas(64) ChunkHeader {
  std::atomic<ChunkState> state;
  std::atomic<std::uint32_t> next_free;  // index + 1 of the next free chunk
  std::atomic<std::uint64_t> lease;      // unique per lease, from 1
  std::atomic<std::uint32_t> committed;  // published bytes
  std::atomic<std::uint32_t> drained;    // (reader) bytes that are in the recording
  std::uint32_t pid, tid;                // owner
  std::uint64_t start_ticks;             // owner process
  std::uint32_t lost_before;             // records this thread dropped before this lease
  std::uint32_t slot;
  std::atomic<std::uint32_t> claimed;    // (reader) bytes that it reads or has read
  std::atomic<std::uint32_t> retracted;  // records taken back, modulo 2^32
};

static_assert(sizeof(PoolHeader) == 4096 && sizeof(ProcessSlot) == 128 && sizeof(ChunkHeader) == 64);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// A mapped pool. Zero-initialised means switched off: every call on it is a no-op.
struct PoolView {
  PoolHeader* header = nullptr;
  ProcessSlot* slots = nullptr;
  ChunkHeader* chunks = nullptr;
  std::byte* data = nullptr;
  explicit operator bool() const { return header != nullptr; }
};

// Bytes of a pool file with this geometry.
std::uint64_t pool_bytes(std::uint32_t chunk_count, std::uint32_t slot_count) noexcept;

// Lays out a fresh (all zero) mapping of pool_bytes(), where space is reserved for all but the last `bare_chunks`.
PoolView format_pool(void* mapping, std::uint32_t chunk_count, std::uint32_t slot_count, SessionId session,
                     std::uint32_t bare_chunks = 0) noexcept;

// What must have its space before a pool with so many bare chunks is formatted: from the start of the mapping.
std::uint64_t reserved_bytes(std::uint32_t chunk_count, std::uint32_t slot_count, std::uint32_t bare_chunks) noexcept;

// Reserves the space of pages of a shared mapping; false, with errno, when there is none (EFAULT), or the kernel is
// older than Linux 5.14 (EINVAL). Never SIGBUS.
bool reserve_pages(void* address, std::size_t size_bytes) noexcept;

// Reserves the space of up to `count` bare chunks and frees them; false when there is no more of it.
bool add_chunks(PoolView pool, std::uint32_t count) noexcept;

// So many are free, or some more get their space: before threads start that want one each. A thread that reserves holds
// the lock of all mappings, and may lose the CPU with it: one should do so for all.
void keep_free(PoolView pool, std::uint32_t wanted) noexcept;

// Checks an existing mapping of `size_bytes`; an empty view when it is not a pool of this version or
// does not fit into the mapping. Never reads outside of it.
PoolView open_pool(void* mapping, std::uint64_t size_bytes) noexcept;

// Claims a slot for this process, kNoSlot when all are taken.
std::uint32_t claim_slot(PoolView pool, std::uint32_t pid, std::uint64_t start_ticks) noexcept;

// Wakes the reader. Async-signal-safe.
void ring_doorbell(PoolView pool) noexcept;

// True where the kernel has said so; a reader that an OOM kill took apart may only fall silent (reader_beat_ns).
bool is_reader_dead(const PoolHeader& header) noexcept;

// What a thread holds: plain data, zero-initialised is "no chunk yet".
struct Lease {
  ChunkHeader* chunk = nullptr;
  std::byte* data = nullptr;
  std::uint32_t used = 0;   // = committed
  std::uint32_t lost = 0;   // records dropped since the last successful lease
  std::uint64_t ticks = 0;  // of its last clock or compact record; 0: none yet
  // The last record that may be taken back: of which block, and where it lies. 0: none.
  std::uint64_t retractable_block = 0;
  std::uint32_t retractable_at = 0, retractable_end = 0;
};

// Who writes; copied into every chunk it leases.
struct Writer {
  PoolView pool;
  std::uint32_t pid = 0, tid = 0, slot = kNoSlot;
  std::uint64_t start_ticks = 0;
  bool is_exact = false;  // waits where the pool is full, and wakes the reader before
};

// Space for one record of `size_bytes` (rounded up to 8, at most kChunkBytes), nullptr when it had to
// be dropped (counted in the pool, the slot and lease.lost). Becomes visible only by publish().
std::byte* reserve(const Writer& writer, Lease& lease, std::size_t size_bytes) noexcept;
inline void publish(Lease& lease, std::size_t size_bytes) noexcept {
  lease.used += padded(size_bytes);
  lease.chunk->committed.store(lease.used, std::memory_order_release);
}

// Takes back what was published from `from` on, the last record. False: the reader has it, or may be about to read it.
// Either side stores first what it wants and then reads what the other one wants, so that one of them at least gives
// way.
inline bool retract(Lease& lease, std::uint32_t from) noexcept {
  ChunkHeader& chunk = *lease.chunk;
  if (chunk.claimed.load(std::memory_order_relaxed) > from) return false;
  chunk.committed.store(from, std::memory_order_seq_cst);
  if (chunk.claimed.load(std::memory_order_seq_cst) > from) {
    chunk.committed.store(lease.used, std::memory_order_release);
    return false;
  }
  chunk.retracted.store(chunk.retracted.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  lease.used = from;
  return true;
}

// Hands the chunk over to the reader; the lease is empty afterwards.
void seal(Lease& lease) noexcept;

// Reader side: published bytes of a chunk that are not yet drained. `bytes` stays valid until
// finish_segment; it points into the shared mapping, which the target may scribble on: copy first.
struct Segment {
  std::uint32_t chunk_index = 0;
  std::uint64_t lease = 0;
  std::uint32_t offset = 0;
  std::span<const std::byte> bytes;
  std::uint32_t pid = 0, tid = 0, lost_before = 0;
  std::uint64_t start_ticks = 0;
  bool sealed = false;
};

// The undrained part of chunk `index`, which is claimed with that; an empty span and sealed = false when there is
// nothing.
Segment next_segment(PoolView pool, std::uint32_t index) noexcept;

// Marks the segment as stored. A sealed chunk that is drained to its end goes back to the free list;
// `owner_gone` seals the chunk on behalf of a dead thread first.
void finish_segment(PoolView pool, const Segment& segment, bool owner_gone) noexcept;

}  // namespace whyrss::trace
