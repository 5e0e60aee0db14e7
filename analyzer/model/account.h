// What the analyzer concludes about a recording, and all that verdicts and reports may read.
//
// Invariants (required in release builds when an Account is closed):
//   the slices of an Account sum to its rss_bytes; every slice is > 0.
// Times are seconds since the recording began; sizes are bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/page_map.h"
#include "model/slice_list.h"
#include "model/stack_table.h"

namespace whyrss {

// What of the heap CPython's small-object allocator holds: it maps its arenas itself.
struct PymallocBytes {
  std::int64_t live = 0, slack = 0, retained = 0;
  std::int64_t live_by_arena = 0;  // of `live`: no object was sampled, so the line is that which made the arenas grow
};

// The resident memory of one process at one moment.
struct Account {
  double time_s = 0;
  std::int64_t rss_bytes = 0;  // pages that the walk counted
  bool skewed = false;
  bool asked = false;  // the process or one of its family asked for the walk, and waited for it
  // When the last walk before it was made, if this is an estimate: its RSS is polled, and known from events since that
  // walk; what these do not explain is Cause::not_looked_at.
  std::optional<double> estimated_from_s{};
  bool has_liveness = false;  // else what is live in the heap is an estimate from samples, or not known at all
  bool has_huge = false;      // 2 MiB pages were inspected: Slice::huge_bytes is known
  PymallocBytes pymalloc;     // part of heap_live, heap_slack, heap_retained
  SliceList slices;           // one per site, largest first
  std::shared_ptr<const PageMap> picture{};  // of some walks, where pictures are asked for
};

struct RssPoint {
  double time_s = 0;
  std::int64_t rss_bytes = 0;
  std::int64_t shared_bytes = 0;  // of them of files and shmem (statm's third field)
};

// What the shim's counters of malloc's blocks say is live, where that changed; in the sampled mode with its error.
struct LivePoint {
  double time_s = 0;
  std::int64_t live_bytes = 0;  // from an origin of their own: only differences tell something
};

// smaps_rollup and status at one moment.
struct KernelTotals {
  double time_s = 0;
  std::optional<std::int64_t> rss_bytes, pss_bytes, uss_bytes, swap_bytes, hugetlb_bytes, page_table_bytes;
  std::optional<std::int64_t> anonymous_bytes{};  // of rss_bytes
  std::optional<std::int64_t> pss_anonymous_bytes{}, pss_file_bytes{},
      pss_shmem_bytes{};  // Linux 5.4: sum to pss_bytes
};

// Pages of files mapped MAP_SHARED and writable that were newer than the file on disk, at one reading of smaps.
struct DirtyFiles {
  double time_s = 0;
  std::map<std::string, std::int64_t> bytes;     // by path
  std::map<std::string, std::int64_t> locked{};  // of any mapped file, clean or dirty: page cache that mlock holds
};

// How large mapped files were at one walk, by path; of those that had 1 MiB in memory, where it had changed.
struct FileSizes {
  struct Size {
    std::int64_t size_bytes = 0;    // of the file
    std::int64_t mapped_bytes = 0;  // of all its mappings, up to its end
    bool is_writable = false;       // through one of them, to the file
  };
  double time_s = 0;
  std::map<std::string, Size> files;
};

// Shared memory that no process maps and that is counted at this one, from one reading to the next.
struct UnmappedMemory {
  struct File {
    std::string name;  // as the kernel names it
    std::int64_t bytes = 0;
    std::uint32_t device_major = 0, device_minor = 0;  // of a System V segment 0
    std::uint64_t inode = 0;                           // of a System V segment its id
    StackId made_at = kEmptyStack;                     // who made it, or mapped it first
    bool is_mapped_later = false;                      // by a walk after this reading
  };
  double time_s = 0;
  std::optional<std::int64_t> bytes;  // nothing: its open files may not be read
  std::int64_t count = 0;             // of files
  std::vector<File> files{};          // the largest
};

// Memory that this process copied between the previous account and this moment. The slices of one time, one
// `allocated_at` and one `in_large_block` sum to what was copied. Those with a `written_at` are estimates from sampled
// faults; the one without is the difference, which may be negative.
struct CowSlice {
  double time_s = 0;
  StackId allocated_at = kEmptyStack;
  StackId written_at = kEmptyStack;
  std::int64_t copied_bytes = 0;
  double variance = 0;          // of `copied_bytes`, in bytes squared
  bool in_large_block = false;  // as in Site
};

// What became of pages that a fork made shared, between the previous walk of the process and this one.
struct SharingChange {
  double time_s = 0;
  std::int64_t copied_bytes = 0;               // by this process, as in its CowSlices
  std::int64_t doubtful_bytes = 0;             // of those, what another process may have copied instead
  std::int64_t copied_by_relatives_bytes = 0;  // its own now, because the last other process copied its page
  std::int64_t left_by_relatives_bytes = 0;    // its own now, because the last other process ended or unmapped it
  std::int64_t reused_bytes = 0;               // written after it had become its own: no copy
  bool estimate = false;                       // known from page faults after the last walk, or in part doubtful
};

// Large buffers that only views of a small part of them keep alive, at one walk: of one line that made buffers and one
// that made views.
struct RetainedViews {
  double time_s = 0;
  StackId made_at = kEmptyStack;
  StackId viewed_at = kEmptyStack;  // empty: not known, as objects are not followed one by one
  std::int64_t buffer_count = 0, buffer_bytes = 0;
  std::int64_t view_count = 0, view_bytes = 0;
};

// Page faults in user mode that were sampled: each sample stands for several.
struct TouchFigures {
  bool armed = false;      // at some time, in some thread
  std::string off_reason;  // "" while armed, or when nothing is known
  std::uint64_t samples = 0, faults = 0, missed = 0;
  std::uint64_t counted_kernel_faults = 0;  // by calls that were watched; not among `faults`
  // At the last walk: all minor faults of the process, and those of them that samples stand for.
  std::uint64_t all_faults = 0, sampled_of_all = 0;
};

// What the process's allocator said about itself.
struct AllocatorStats {
  double time_s = 0;
  std::string moment;                          // start, peak, end, snapshot
  std::map<std::string, std::int64_t> values;  // by the allocator's own names, in its own units
  // What the shim counted as live at that moment, by usable sizes; nothing: it did not count.
  std::optional<std::int64_t> counted_bytes, counted_blocks;
};

// What the memory cgroup that limits the processes said at one moment, the groups below it included. Counters count
// from when it was made. What the kernel does not tell is missing.
struct CgroupReading {
  double time_s = 0;
  bool after_end = false;  // a process of the group had just ended: what it held is gone already
  std::optional<std::int64_t> usage_bytes, peak_bytes;
  // Parts of the usage. `file` is page cache of files, mapped or not, which the kernel takes back when the limit is
  // reached; shared memory and tmpfs are not in it.
  std::optional<std::int64_t> anon_bytes, shmem_bytes, file_bytes, kernel_bytes;
  std::optional<std::int64_t> mapped_file_bytes, dirty_bytes;  // parts of `file`
  std::optional<std::int64_t> swap_bytes;
  std::optional<std::int64_t> limit_hits;       // how often memory was wanted at the limit
  std::optional<std::int64_t> high_hits;        // the same for memory.high
  std::optional<std::int64_t> reclaimed_bytes;  // taken back by the kernel (v2)
  std::optional<std::int64_t> refaulted_bytes;  // of files: read again after they had been taken back
  std::optional<std::int64_t> oom_kills, group_kills;
};

struct CgroupAccount {
  int version = 0;   // 1, 2; 0: not known from the recording
  std::string path;  // directory of the group with the smallest limit on the way up, else of the program's own
  std::optional<std::int64_t> limit_bytes;  // nothing: no limit
  std::optional<std::int64_t> high_bytes;   // memory.high: above it the kernel takes back and slows down
  std::optional<std::int64_t> peak_bytes;   // of its usage, of all readings
  bool made_by_record = false;              // --memory-max
  bool kills_all = false;                   // memory.oom.group
  std::vector<CgroupReading> readings;      // by time
  // File pages that were mapped at one walk and gone at the next: reclaimed at least (ProcessAccount::file_bytes_gone).
  std::int64_t seen_reclaimed_bytes = 0;
};

// The kernel's own word, in its log, on a process that it killed for lack of memory.
struct OomKill {
  double time_s = 0;
  int pid = 0;
  bool at_limit = false;                                         // of a cgroup; else the machine had none left
  std::string group;                                             // that cgroup, as the kernel names it
  std::int64_t anon_bytes = 0, file_bytes = 0, shmem_bytes = 0;  // resident in the process when it was killed
  std::string line;                                              // as it stands in the log
  // Of that cgroup, with those below it: what it held then (anonymous, shared, file cache). Nothing: the log has none.
  std::optional<CgroupReading> group_reading;
  std::optional<std::int64_t> group_limit_bytes;
};

struct ProcessAccount {
  int pid = 0;
  std::optional<int> parent;
  bool born_by_fork = false;
  double born_s = 0;
  std::optional<double> ended_s;
  std::optional<double> left_s;  // when it had begun to leave, and the last reading of it was taken
  // When it began to free what it had kept (main returned, exit() was called, its interpreter finalises), with the walk
  // that it asked for then; when it called _exit(), where it did nothing like that. Nothing: it was ended, or lives on.
  std::optional<double> teardown_s;
  // How long before that, or before its end, it was walked last. 0: within 100 ms, or nothing has moved since.
  // Nothing: it has not ended, or was never walked.
  std::optional<double> unseen_s;
  std::string end_signal;  // SIGKILL ...; "": by none, or not known
  bool has_left = false;   // it said itself that it ends
  bool traced = false;     // the shim was in it; else causes come from the kernel alone
  std::string unfit;  // "is statically linked": why it could not be traced; "" where it could, or that is not known
  std::string untraced_reason;  // "its environment has no LD_PRELOAD", as a note says it with advice; "" without one
  std::vector<std::string> command;
  std::string exe;
  // What its launcher said of its place in a job: RANK, SLURM_JOB_ID ... (recording/job_variables.h).
  std::map<std::string, std::string> environment;
  std::vector<std::string> package_folders;  // of PYTHONPATH, with their slashes; of all programs that it ran
  std::string allocator;                     // glibc, jemalloc, tcmalloc, mimalloc, other
  std::optional<std::string> python;         // "3.11.2"
  std::vector<Account> accounts;             // by time
  std::vector<RssPoint> polls;               // statm, by time
  std::vector<LivePoint> live_polls;         // by time
  std::vector<double> sized_edges_s;         // of phases, at which it gave its size and waited for no walk; by time
  std::vector<KernelTotals> totals;          // by time
  std::vector<DirtyFiles> dirty_files;       // by time
  std::vector<FileSizes> file_sizes;         // by time
  std::vector<UnmappedMemory> unmapped;      // by time; before the first one there is none
  std::vector<CowSlice> copies;              // by time
  std::vector<SharingChange> sharing;        // by time
  bool write_tracked = false;         // its writes to shared pages were known from the kernel, else by exclusive bits
  std::int64_t high_water_bytes = 0;  // VmHWM
  bool high_water_at_least = false;   // it may have risen since VmHWM was read
  // Of mapped files: resident at one walk, and gone at the next without its doing.
  std::int64_t file_bytes_gone = 0;
  std::uint64_t lost_events = 0;
  std::vector<std::string> notes;  // why something is missing for this process
  TouchFigures touch;
  std::vector<double> view_walks_s;              // when retaining views were looked for, by time
  std::vector<RetainedViews> retained_views;     // what was found then, by time
  std::vector<AllocatorStats> allocator_stats;   // by time
  std::map<std::string, std::int64_t> counters;  // small_allocations, ...
};

struct Phase {
  std::string name;
  double from_s = 0, to_s = 0;
  int pid = 0;  // whose it is
};

struct Mark {
  std::string name;
  double at_s = 0;
};

// Files in memory that the processes made, and that were there when all had ended.
struct LeftMemory {
  std::int64_t count = 0, bytes = 0;
  std::string largest;  // its name
};

struct RecordingInfo {
  std::string path, host;
  std::string boot_id;  // of the host's kernel
  std::string version;  // of whyrss
  std::string session;  // 32 hex digits
  std::vector<std::string> command;
  std::string started;                    // RFC 3339 with microseconds: the wall time of 0 s
  std::int64_t started_monotonic_ns = 0;  // at the same moment
  double duration_s = 0;
  std::string mode = "sampled";
  bool complete = false;
  std::string incomplete_why;  // "" when complete
  std::optional<int> exit_code;
  std::optional<std::string> exit_signal;
  // The main process, by the kernel for lack of memory: its log names it, or, where that is not readable, a counter of
  // its group rose as it ended. `oom_kill_probable`: that may have been the kill of another one in the group.
  bool oom_killed = false, oom_kill_probable = false;
  bool end_unseen = false;  // it is gone, and so is the collector, which would have recorded how
  std::uint64_t lost_events = 0, lost_snapshots = 0;
  double collector_cpu_s = 0;              // of all that was recorded
  std::optional<double> overhead_percent;  // of a core, that walks may cost
  std::vector<std::string> notes;
  std::map<std::string, std::string> capabilities;  // "touch" -> "none", "page_scan" -> "true" ...
  std::optional<CgroupAccount> cgroup;
  std::optional<LeftMemory> left_files;            // nothing: not known
  std::vector<OomKill> oom_kills;                  // by time; empty also where the log was not readable
  std::optional<std::int64_t> memory_total_bytes;  // of the machine: what %MEM is a part of
};

struct RecordingAccount {
  RecordingInfo info;
  std::vector<ProcessAccount> processes;  // main process first, then by birth
  std::vector<Phase> phases;
  std::vector<Mark> marks;
  StackTable stacks;
  // Whose innermost function is an allocator's, with or without a name: it returned a block of a library's allocator,
  // or mapped memory by MAP_NORESERVE, as allocators do and hardly anybody else.
  std::set<StackId> allocator_stacks;
};

}  // namespace whyrss
