// The one contract between the process under measurement and its readers: the event records that the
// shim writes into pool chunks (pool.h) and that a recording stores unchanged (recording_format.h).
//
// Changing it:  new record kind          no bump (readers skip what they do not know by size_bytes)
//               field in `reserved`      no bump if 0 means "not known"
//               any other field          bump kFormatVersion, add a History line and, once there was a release, a
//                                        golden recording
// History:      3  the first that is read; 1 and 2 were in no release
//
// Little-endian, records 8-aligned, units in the names. Strings are raw bytes without a terminator.
// Every record is written by one thread into its own chunk; order inside a chunk is program order,
// order between chunks is time_ns (CLOCK_MONOTONIC). A release is stamped before the real free and
// an allocate after the real malloc returned, so a merge by time never sees an address allocated twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace whyrss::trace {

inline constexpr std::array<char, 8> kMagic{'w', 'h', 'y', 'r', 's', 's', '\r', '\n'};
inline constexpr std::uint32_t kFormatVersion = 3;

// Blocks of at least this many usable bytes are logged; smaller ones are sampled and counted, or in exact mode logged
// as CompactAllocate.
inline constexpr std::uint64_t kLargeBlockBytes = 32 * 1024;

// Below this size a block is not logged but sampled and counted, as small ones are, while its thread asks for so many
// that records of them would cost it time; not in exact mode, nor without a liveness table.
inline constexpr std::uint64_t kAlwaysLoggedBytes = 128 * 1024;

// The same of an allocator inside a library; smaller ones are logged in exact mode alone.
inline constexpr std::uint64_t kLibraryBlockBytes = 4 * 1024;

// Stack id of an event whose stack could not be taken or stored.
inline constexpr std::uint32_t kNoStack = 0;

// Deepest stacks that are stored; the leaf side is kept, StackFlags::truncated is set.
inline constexpr std::uint32_t kMaxNativeFrames = 256;
inline constexpr std::uint32_t kMaxPythonFrames = 512;

enum class RecordKind : std::uint16_t {
  padding = 0,
  attach = 1,             // AttachRecord: a program image or a forked child starts to be traced
  module = 2,             // ModuleRecord: an ELF image that a later stack refers to
  python = 3,             // PythonRecord: the interpreter found in this process
  code = 4,               // CodeRecord: a Python code object that a later stack refers to
  stack = 5,              // StackRecord: described once, then referred to by id
  allocate = 6,           // BlockRecord: malloc family, operator new
  release = 7,            // BlockRecord: free, operator delete, realloc before the real call
  release_undone = 8,     // BlockRecord: the realloc announced by the last release of this address failed
  map = 9,                // MapRecord: mmap
  unmap = 10,             // RangeRecord: munmap, stamped before the real call
  remap = 11,             // RemapRecord: mremap
  protect = 12,           // RangeRecord: mprotect, argument = new PROT_ bits
  advise = 13,            // RangeRecord: madvise, argument = MADV_
  break_moved = 14,       // RangeRecord: brk, sbrk: address = new break, size_bytes = old break
  fork = 15,              // ProcessRecord: in the parent, pid = the child's
  inherited = 16,         // InheritedRecord: in the child, private pages that were resident at fork
  exec = 17,              // TextRecord: about to replace the image by the named program
  exec_failed = 18,       // TextRecord: the exec announced last returned
  exit = 19,              // ProcessRecord: about to leave, status = exit code
  thread = 20,            // ThreadRecord: a new thread's stack
  mark = 21,              // TextRecord: user mark; argument = MarkKind
  note = 22,              // TextRecord: why something is off or missing; shown in every report
  spawn = 23,             // ProcessRecord: posix_spawn or vfork was called; pid = child's if known, else 0
  teardown = 24,          // ProcessRecord, status = Teardown: from here on what is freed says nothing about the
                          // program, so the state before is the last of interest
  touch = 25,             // TouchRecord: a sampled page fault in user mode
  touch_state = 26,       // TextRecord: argument = TouchState of this process; the text says why it is off
  tables = 27,            // TablesRecord: whose stacks, code objects and modules this image also refers to
  clock = 28,             // ClockRecord: what the ticks of the compact records that follow in this lease mean
  compact_allocate = 29,  // CompactAllocate: as allocate, exact mode; no RecordHeader::time_ns
  compact_release = 30,   // CompactRelease: as release, exact mode; no RecordHeader::time_ns
  allocator_stats = 31,   // TextRecord: argument = StatsMoment; "name=value name=value ..." as the allocator says
  kernel_faults = 32,     // KernelFaultsRecord: pages that the kernel made resident in one call
  no_uffd_handoff = 33,   // TextRecord, empty: this process could not hand over its memory (write_tracking.h)
  ended_child = 34,       // ProcessRecord: a child that ended was waited for; status = its ru_maxrss in KiB
  shared_file = 35,       // SharedFileRecord: a file in memory that this process made or mapped
  thread_creator = 36,    // ThreadCreatorRecord: which thread called pthread_create; before its `thread`
  library_allocate = 37,  // BlockRecord: as allocate, of an allocator inside a library; size_bytes = as asked for
  size = 38,              // SizeRecord: before the mark of a phase's edge at which no walk is taken
};

struct RecordHeader {
  std::uint32_t size_bytes;  // whole record with its variable part, a multiple of 8
  RecordKind kind;
  std::uint16_t reserved;
  std::uint64_t time_ns;  // CLOCK_MONOTONIC at the writer
};

// ProcessRecord::status of a teardown; older recordings have 0: of a runtime.
struct Teardown {
  static constexpr std::int32_t runtime = 1;  // an interpreter takes itself down: the program may live on
  static constexpr std::int32_t process = 2;  // main has returned, exit() was called, the last thread ends
  static constexpr std::int32_t unmoved = 4;  // nothing that is worth a walk has happened since the last one
  static constexpr std::int32_t script = 8;   // alone: no Python code is left to run; with runtime: that was its begin
  static constexpr std::int32_t undone = 16;  // an interpreter was started again: what was reported before is void
};

enum class Born : std::uint32_t { exec = 0, fork = 1 };

enum class Mode : std::uint32_t { sampled = 0, exact = 1 };

enum class Allocator : std::uint32_t { other = 0, glibc = 1, jemalloc = 2, tcmalloc = 3, mimalloc = 4 };

// First record of every image (after exec) and of every forked child. It resets the reader's picture
// of the address space: after exec to nothing, after fork to a copy of the parent's at the parent's
// fork record. Then: exe path, command line (NUL-separated, at most 4 KiB), path of the library that
// serves malloc.
struct AttachRecord {
  RecordHeader header;
  std::uint32_t pid, parent_pid;
  std::uint64_t start_ticks;  // field 22 of /proc/PID/stat: with pid and host it names the process
  Born born;
  Allocator allocator;
  std::uint32_t exe_bytes, command_bytes, allocator_path_bytes;
  std::uint32_t page_bytes;
  std::uint64_t own_start, own_end;  // the shim's own library image (cause `whyrss`)
  std::uint64_t sample_bytes;        // mean distance of sampled small blocks; 0: none is sampled
  Mode mode;
  std::uint32_t has_liveness;  // 1: this image keeps a liveness table (liveness_format.h)
};

// An ELF image: [start, end) as loaded, bias = address - ELF vaddr. Then: build id, path.
struct ModuleRecord {
  RecordHeader header;
  std::uint64_t start, end, bias;
  std::uint32_t build_id_bytes, path_bytes;
};

// Minor versions of CPython 3 whose frames are read.
inline constexpr std::uint32_t kFirstPythonMinor = 8, kLastPythonMinor = 15;

enum class PythonSupport : std::uint32_t { full = 0, unknown_version = 1, mismatch = 2, not_cpython = 3 };

// The CPython found in this process. [eval_start, eval_end) is _PyEval_EvalFrameDefault, or 0.
// Then: version text ("3.11.2").
struct PythonRecord {
  RecordHeader header;
  PythonSupport support;
  std::uint32_t version_hex;  // PY_VERSION_HEX
  std::uint64_t eval_start, eval_end;
  std::uint64_t runtime_start, runtime_end;  // the ELF image that holds the interpreter
  std::uint32_t version_bytes, reserved;
};

// A Python code object. Strings are as CPython holds them: `kind` bytes per code point (1 = Latin-1,
// 2 = UTF-16 without surrogate pairs, 4 = UTF-32). Then: file, name, qualname, line table.
// The line table's format follows version_hex of the PythonRecord.
struct CodeRecord {
  RecordHeader header;
  std::uint32_t code_id;  // from 1, unique in this process image and what it inherited
  std::uint32_t first_line;
  std::uint32_t file_bytes, name_bytes, qualname_bytes, line_table_bytes;
  std::uint8_t file_kind, name_kind, qualname_kind, flags;
  std::uint32_t reserved;
};

// Names the tables of stacks, code objects and modules that an image fills, and those that it began with: a
// fork child goes on with its parent's, as they were at the fork, and does not describe again what they hold.
// What it describes itself goes first. Ids of other images do not matter to it.
struct TablesRecord {
  RecordHeader header;
  std::uint32_t pid, inherited_pid;            // of the image that filled them; 0: began with none
  std::uint64_t since_ns, inherited_since_ns;  // when it began to: together with pid unique
};

struct StackFlags {
  static constexpr std::uint16_t truncated = 1;          // deeper frames were cut off
  static constexpr std::uint16_t python_torn = 2;        // the Python chain was not complete
  static constexpr std::uint16_t native_incomplete = 4;  // unwinding stopped before the thread's start
};

// Innermost first. Then: native_count u64 code addresses (return addresses, pc + 1 for frames that a signal
// interrupted: one byte less always lies in the instruction that ran), then python_count PythonFrame, then
// waiting_count PythonFrame: where the thread stood that waited, of an event of a thread that ran no Python code.
struct StackRecord {
  RecordHeader header;
  std::uint32_t stack_id;  // from 1, unique in this process image and what it inherited
  std::uint16_t native_count, python_count;
  std::uint16_t flags, waiting_count;
  std::uint32_t reserved;
};

inline constexpr std::uint16_t kNoNativeIndex = 0xffff;

struct PythonFrameFlags {
  static constexpr std::uint16_t entry = 1;       // outermost Python frame of one C eval call
  static constexpr std::uint16_t incomplete = 2;  // not yet started: traceback does not show it
};

struct PythonFrame {
  std::uint32_t code_id;
  std::int32_t last_instruction_bytes;  // offset in the bytecode; < 0: before the first instruction
  std::uint16_t native_index;           // the native frame it runs in; kNoNativeIndex: not known
  std::uint16_t flags;
  std::uint32_t reserved;
};

// allocate, library_allocate, release, release_undone. A release repeats no size; the reader knows it by address.
// A sampled block stands for others: it was chosen with probability 1 - exp(-sampled_bytes / mean), where the mean is
// sample_bytes of the AttachRecord, or that times a power of 2 where a thread allocated so fast that samples would have
// cost it time. Blocks with sampled_bytes = 0 are all there.
struct BlockRecord {
  static constexpr unsigned kCoarsenessShift = 56;  // of sampled_bytes: above it the power of 2

  RecordHeader header;
  std::uint64_t address;
  std::uint64_t size_bytes;     // usable, as malloc_usable_size says; 0 for release
  std::uint64_t sampled_bytes;  // what the sampling counted it with; 0: logged for certain
  std::uint32_t stack_id;
  std::uint32_t tid;
};

// Exact mode. A compact record has no RecordHeader: after size_bytes and kind, as there, comes the address's high part.
// Its time is the sum of ticks_since from the last ClockRecord of the same lease on; the first compact record of a
// lease comes after one. Ticks of one host compare across threads and processes (rdtsc where the kernel's clock source
// is tsc, else nanoseconds of CLOCK_MONOTONIC). One event in 64 is stamped at least; others, whose order among all
// threads is known without, have 0 and keep their place in their thread.
struct ClockRecord {
  RecordHeader header;
  std::uint64_t ticks;  // taken together with header.time_ns
};

struct CompactAllocate {
  std::uint32_t record_bytes;  // sizeof
  RecordKind kind;
  std::uint16_t address_high;  // bits 32 to 47
  std::uint32_t address_low;
  std::uint32_t ticks_since;
  std::uint32_t size_bytes;  // usable; larger blocks are logged as BlockRecord
  std::uint32_t stack_id;
};

struct CompactRelease {
  std::uint32_t record_bytes;
  RecordKind kind;
  std::uint16_t address_high;
  std::uint32_t address_low;
  std::uint32_t ticks_since;
};

enum class StatsMoment : std::uint32_t { start = 0, peak = 1, end = 2, snapshot = 3 };

enum class MapOrigin : std::uint16_t {
  program = 0,   // by the innermost frame's library
  pymalloc = 1,  // CPython's arena allocator: small-object arenas and frame stacks
  whyrss = 2,    // the shim's own tables and the pool
};

// What a mapping shows.
enum class MappedFile : std::uint16_t {
  none = 0,    // no file, a private mapping, or not known: recordings of before
  disk = 1,    // of a file system that is not tmpfs
  memory = 2,  // a file in tmpfs, a memfd, a SysV segment
};

struct MapRecord {
  RecordHeader header;
  std::uint64_t address, size_bytes;  // size as requested, not rounded to pages
  std::uint64_t file_offset;
  std::uint32_t prot, flags;
  std::int32_t fd;  // -1: anonymous, or shmat's
  MapOrigin origin;
  MappedFile file;
  std::uint32_t stack_id, tid;
};

// By memfd_create(2), of one in tmpfs that was made or emptied, or of a mapping that is shared; of a SysV segment its
// id as `inode`, on no device.
struct SharedFileRecord {
  RecordHeader header;
  std::uint64_t inode;
  std::uint32_t device_major, device_minor;
  std::uint32_t stack_id, tid;
};

// unmap, protect, advise, break_moved
struct RangeRecord {
  RecordHeader header;
  std::uint64_t address, size_bytes;
  std::int64_t argument;
  std::uint32_t stack_id, tid;
};

struct RemapRecord {
  RecordHeader header;
  std::uint64_t old_address, old_size_bytes, new_address, new_size_bytes;
  std::uint32_t flags, stack_id, tid, reserved;
};

// fork, exit, spawn
struct ProcessRecord {
  RecordHeader header;
  std::uint32_t pid;
  std::int32_t status;
  std::uint32_t stack_id, tid;
};

// A run of pages that were present and private anonymous (or private copies of file pages) when the
// child began: [start, start + page_count pages).
struct PageRun {
  std::uint64_t start;
  std::uint64_t page_count;
};

// Then: run_count PageRun. A child may write several; the last has `complete` = 1.
struct InheritedRecord {
  RecordHeader header;
  std::uint32_t run_count;
  std::uint32_t complete;
};

struct ThreadRecord {
  RecordHeader header;
  std::uint32_t tid;
  std::uint32_t stack_id;        // the pthread_create call
  std::uint64_t stack_pointer;   // inside the stack's mapping, near its top
  std::uint64_t thread_pointer;  // the TCB, in the same mapping above the stack
};

struct ThreadCreatorRecord {
  RecordHeader header;
  std::uint32_t tid, creator_tid;
};

// What this process comes to.
struct SizeRecord {
  RecordHeader header;
  std::uint64_t rss_pages, shared_pages;  // statm fields 2 and 3
  std::uint64_t minor_faults;             // since it was born
  std::int64_t live_bytes;                // ProcessSlot::live_bytes
};

enum class MarkKind : std::uint32_t { mark = 0, phase_begin = 1, phase_end = 2, snapshot = 3 };
// The text of the mark between the two walks around malloc_trim(0) (WHYRSS_OPTS at_end=trim).
inline constexpr std::string_view kTrimMark = "malloc_trim(0)";

// One page fault of every `weight_faults`, with the stack that made it.
struct TouchRecord {
  static constexpr std::uint32_t kCollecting = 1U << 31;  // in weight_faults: CPython's cyclic collector made it

  RecordHeader header;
  std::uint64_t address;        // the byte that was accessed
  std::uint32_t weight_faults;  // faults that this one stands for
  std::uint32_t missed_faults;  // of this process, sampled before this one and not recorded
  std::uint32_t stack_id, tid;
};

// What page-fault events of user mode do not see: a read into fresh memory, MAP_POPULATE, mlock, MADV_POPULATE_*.
// By the difference of ru_minflt of the thread around the call (getrusage(2), RUSAGE_THREAD). Reads are measured at
// random, small ones less often: one that is recorded stands for `weight_calls` like it, so that sums are unbiased.
struct KernelFaultsRecord {
  RecordHeader header;
  std::uint64_t address, size_bytes;  // what a read filled, or the range of the call (mlockall: 0, 2^47)
  std::uint32_t faults;               // of this call; at most the pages of the range
  std::uint32_t weight_calls;         // 1: all such calls are measured
  std::uint32_t stack_id, tid;
};

enum class TouchState : std::uint32_t { off = 0, armed = 1 };

// exec, exec_failed, mark, note, touch_state, allocator_stats. Then: the text.
struct TextRecord {
  RecordHeader header;
  std::uint32_t argument;
  std::uint32_t text_bytes;
};

static_assert(sizeof(RecordHeader) == 16 && sizeof(AttachRecord) == 88 && sizeof(ModuleRecord) == 48);
static_assert(sizeof(PythonRecord) == 64 && sizeof(CodeRecord) == 48 && sizeof(StackRecord) == 32);
static_assert(sizeof(PythonFrame) == 16 && sizeof(BlockRecord) == 48 && sizeof(MapRecord) == 64);
static_assert(sizeof(RangeRecord) == 48 && sizeof(RemapRecord) == 64 && sizeof(ProcessRecord) == 32);
static_assert(sizeof(PageRun) == 16 && sizeof(InheritedRecord) == 24 && sizeof(ThreadRecord) == 40);
static_assert(sizeof(TextRecord) == 24 && sizeof(TouchRecord) == 40 && sizeof(KernelFaultsRecord) == 48);
static_assert(sizeof(TablesRecord) == 40 && sizeof(ClockRecord) == 24 && sizeof(SharedFileRecord) == 40);
static_assert(sizeof(ThreadCreatorRecord) == 24 && sizeof(SizeRecord) == 48);
static_assert(sizeof(CompactAllocate) == 24 && sizeof(CompactRelease) == 16);
static_assert(std::has_unique_object_representations_v<AttachRecord>);  // no padding to leak
static_assert(std::has_unique_object_representations_v<MapRecord>);
static_assert(std::has_unique_object_representations_v<StackRecord>);

// Bytes that a record of `size` bytes takes in a chunk.
constexpr std::uint32_t padded(std::size_t size) { return static_cast<std::uint32_t>((size + 7) & ~std::size_t{7}); }

}  // namespace whyrss::trace
