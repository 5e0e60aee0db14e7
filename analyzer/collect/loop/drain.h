// Moves what the traced processes published from the pool into the recording: compact records of exact mode in columns
// (frames of kind `blocks`), all others as they are (`segment`). Each record is read once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "collect/loop/process_follow.h"
#include "collect/read/clock_reading.h"
#include "collect/read/shared_files.h"
#include "recording/lease_reader.h"
#include "shim/trace/pool.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

// Things seen in passing that call for a walk of a process (`advise`: MADV_FREE alone); the records themselves are not
// interpreted.
struct ProcessEvent {
  ProcessKey process;
  trace::RecordKind kind{};
  std::uint32_t pid = 0;  // fork, spawn: the child
  std::int32_t status = 0;
  SharedFileId file{};    // shared_file
  bool asks_all = false;  // mark: whyrss_snapshot(), else an end of a phase
};

class Drain {
 public:
  // Where a process's segments go; null: it cannot be stored now.
  using Target = std::function<ProcessFollow*(ProcessKey)>;
  // True when the thread has ended for certain, so that its chunk can be taken back.
  using ThreadGone = std::function<bool(ProcessKey, std::uint32_t tid)>;

  explicit Drain(trace::PoolView pool);

  // Walks at everything published since the last call. Bytes are stored when their chunk is sealed, when
  // they are a second old (or as set), when the pool gets full, or for the processes in `ended` (for all with
  // `everything`); only then are they taken off the pool. What cannot be written stays there for another try a second
  // later, but no longer than the job has no need of the room: then it is lost, and the process's recording says so.
  void round(std::int64_t now_ns, const std::set<ProcessKey>& ended, bool everything, const Target& target,
             const ThreadGone& thread_gone);

  // Longest that published bytes stay only in the pool.
  void set_store_after(std::int64_t age_ns) { store_after_ns_ = age_ns; }
  // The next round stores what it can of all processes, however young: a reader is about to read the recording.
  void store_all_next() { store_all_ = true; }
  // What the last round saw.
  std::vector<ProcessEvent> take_process_events() { return std::exchange(process_events_, {}); }
  // Published, and not stored.
  [[nodiscard]] std::uint64_t left_bytes() const;
  // Compact records that the rounds so far took in.
  [[nodiscard]] std::uint64_t compact_records() const { return compact_records_; }
  // Whether chunks that have no space yet may get some.
  void set_can_grow(bool can_grow) { can_grow_ = can_grow; }
  // Chunks that no writer held when the last round came by.
  [[nodiscard]] std::uint32_t free_chunks() const { return free_chunks_; }

 private:
  struct Piece {  // of a chunk: records that no column holds
    std::uint32_t offset, bytes, records;
  };
  struct Payload {
    std::vector<std::byte> bytes;
    std::uint64_t events;
  };
  struct Chunk {  // what we know of each chunk of the pool
    LeaseProgress scanned;
    std::vector<Piece> pieces;  // walked, and not stored
    std::int64_t first_seen_ns = 0;
    std::int64_t owner_checked_ns = 0;
  };
  struct Pending {
    trace::Segment segment;
    bool owner_gone;
  };
  struct Stream {  // of one process
    BlockColumns columns;
    std::vector<Payload> payloads;  // full ones
    std::vector<Pending> pending;   // of this round
    bool due = false;
    std::int64_t retry_ns = 0;  // after an error
  };

  void close_payload(Stream& stream);
  void scan(const trace::Segment& segment, Chunk& chunk, BlockColumns& columns);
  void note_record(const trace::Segment& segment, const LeaseReader::Other& record);
  [[nodiscard]] bool scan_chunk(std::uint32_t index, std::int64_t now_ns, const std::set<ProcessKey>& ended,
                                bool everything, const ThreadGone& thread_gone);
  enum class OnError { keep, give_up };
  void store(std::int64_t now_ns, ProcessKey key, Stream& stream, const Target& target, OnError on_error);
  void give_up(Stream& stream, const std::vector<Pending>& pending, ProcessFollow& process, const Error& why);
  Status store_pieces(std::int64_t now_ns, std::vector<Pending>& pending, ProcessFollow& process);
  Status store_payloads(std::int64_t now_ns, Stream& stream, ProcessFollow& process);

  trace::PoolView pool_;
  std::vector<Chunk> chunks_;
  std::map<ProcessKey, Stream> streams_;
  std::map<ProcessKey, std::uint64_t> newest_image_;  // lease of the last exec's first record
  std::vector<ProcessEvent> process_events_;
  std::uint64_t compact_records_ = 0;
  std::int64_t store_after_ns_ = 1'000'000'000;
  std::uint32_t free_chunks_ = 0, bare_chunks_ = 0;
  bool can_grow_ = true;
  bool store_all_ = false;
  ClockReading begun_;
  std::optional<ProcessKey> full_;  // a frame's worth of its columns is there
};

}  // namespace whyrss
