#include "replay/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

#include "decode/allocator_records.h"
#include "decode/page_frames.h"
#include "decode/touch_records.h"
#include "recording/lease_reader.h"
#include "replay/replay_process.h"
#include "shim/trace/recording_format.h"

namespace whyrss {
namespace {

// Of Replay::Process, which is private.
template <typename Processes>
void choose_pictures(const Processes& processes, const PictureBudget& budget) {
  if (budget.of_each == 0) return;
  std::vector<std::vector<WalkMoment>> moments;
  std::vector<std::vector<std::size_t>> numbers;  // of those walks
  for (const auto& process : processes) {
    moments.emplace_back();
    numbers.emplace_back();
    for (const auto& walk : process->walks) {
      const auto header = read_walk_header(walk.frame->payload);
      if (!header || (header->flags & (trace::WalkFlags::smaps_only | trace::WalkFlags::partial)) != 0) continue;
      moments.back().push_back({header->begin_ns, header->end_ns, header->statm_after_pages});
      numbers.back().push_back(static_cast<std::size_t>(&walk - process->walks.data()));
    }
  }
  const auto pictured = pictured_walks(moments, budget);
  for (std::size_t i = 0; i < processes.size(); ++i)
    for (const PicturedWalk& walk : pictured[i])
      processes[i]->pictured.emplace(numbers[i][walk.number], walk.most_entries);
}

}  // namespace

using trace::RecordKind;

Replay::Replay(ReplaySettings settings, StackTable& stacks) : settings_(std::move(settings)), stacks_(stacks) {}
Replay::~Replay() = default;

void Replay::add(ProcessInput& input, ProcessAccount& account, const KernelEnd& end) {
  auto process = std::make_unique<Process>(stacks_);
  process->input = &input;
  process->account = &account;
  for (const RawFrame& frame : input.pages.frames) {
    if (frame.kind == trace::FrameKind::liveness) process->liveness_frames.push_back(&frame);
    if (frame.kind == trace::FrameKind::views) process->views_frames.push_back(frame.payload);
    if (frame.kind == trace::FrameKind::huge) process->huge_frames.push_back(frame.payload);
    if (frame.kind == trace::FrameKind::lazy_free) process->lazy_frames.push_back(frame.payload);
    if (frame.kind == trace::FrameKind::tracked) add_tracked(*process, frame.payload);
    if (frame.kind == trace::FrameKind::polls) {
      ByteReader reader(frame.payload);
      for (trace::Poll poll{}; reader.take(poll);) process->polls.push_back(poll);
    }
    if (frame.kind == trace::FrameKind::live_polls) {
      ByteReader reader(frame.payload);
      for (trace::LivePoll poll{}; reader.take(poll);) process->live_polls.push_back(poll);
    }
    if (frame.kind != trace::FrameKind::walk) continue;
    if (const auto header = read_walk_header(frame.payload))
      process->walks.push_back({header->end_ns, header->begin_ns, header->trigger, &frame});
    else
      ++process->damaged_walks;
  }
  const auto is_later = [until_ns = settings_.until_ns](const auto& one) { return one.time_ns > until_ns; };
  std::erase_if(process->walks, is_later);
  std::erase_if(process->polls, is_later);
  std::erase_if(process->live_polls, is_later);
  std::ranges::stable_sort(process->walks, {}, &Walk::time_ns);
  std::ranges::stable_sort(process->tracked, {}, &Process::Tracked::time_ns);
  const std::vector<EventRecord> records = load_records(*process);
  std::ranges::stable_sort(process->polls, {}, &trace::Poll::time_ns);
  std::ranges::stable_sort(process->live_polls, {}, &trace::LivePoll::time_ns);
  process->records = RecordList(records);
  find_teardown(*process, records);
  leave_out_teardown(*process);
  process->end = end;
  if (const auto time_ns = teardown_ns(*process)) account.teardown_s = seconds_since(settings_.origin_ns, *time_ns);
  if (const BlockRuns& runs = input.stream.runs(); !runs.empty()) {
    clock_.add(runs);
    process->merge.emplace(input.events, input.stream, records);
    count_blocks_of(*process);
  }
  input.stream.release_bytes();
  by_pid_[input.pid].push_back(process.get());
  processes_.push_back(std::move(process));
}

Bytes Replay::payload_of(Process& process, const RawFrame& frame) {
  const Fd fd = frame.stored_at != 0 ? process.input->pages.reopen() : Fd();
  return process.payload.load(frame, fd.get()).value_or(Bytes());
}

// Once all processes are known.
void Replay::settle_end(Process& process) const {
  while (!process.polls.empty() && process.polls.back().rss_pages == 0) process.polls.pop_back();  // it was gone
  leave_out_cut_off_walk(process);
  settle_polls_of_teardown(process);
  const std::optional<trace::Poll>& at_kill = process.end.at_kill;
  if (at_kill && (process.polls.empty() || process.polls.back().time_ns < at_kill->time_ns)) {
    trace::Poll last = process.polls.empty() ? trace::Poll{} : process.polls.back();
    last.time_ns = at_kill->time_ns;
    last.rss_pages = at_kill->rss_pages;
    last.shared_pages = at_kill->shared_pages;
    process.polls.push_back(last);
    process.killed_ns = last.time_ns;
  } else if (!add_poll_by_mark(process)) {
    add_poll_by_faults(process);
  }
  add_poll_by_blocks(process);
  if (const auto live = process.account->counters.find("live_bytes");
      process.killed_ns != 0 && !process.live_polls.empty() && live != process.account->counters.end())
    process.live_polls.push_back({process.killed_ns, live->second});  // counted until then
  find_moments(process);
}

std::vector<EventRecord> Replay::load_records(Process& process) {
  std::vector<EventRecord> records = process.input->stream.records();
  const bool is_read =
      !process.polls.empty() || !process.walks.empty();  // else its end would have the size of the last edge
  for (const EventRecord& record : records) {
    if (trace::ProcessRecord child{}; record.kind == RecordKind::ended_child && read_record(record, child))
      ended_children_.push_back({child.pid, process.input->pid, record.time_ns, child.status * std::int64_t{1024}});
    if (trace::SizeRecord size{}; record.kind == RecordKind::size && is_read && read_record(record, size)) {
      process.sizes.push_back({record.time_ns, size.rss_pages, size.shared_pages, size.minor_faults, 0});
      process.live_polls.push_back({record.time_ns, size.live_bytes});
    }
  }
  process.polls.insert(process.polls.end(), process.sizes.begin(), process.sizes.end());
  ProgramImages program = define_images(*process.input, records, stacks_, store_, tables_);
  process.images = std::move(program.images);
  if (!program.attached_ns.empty()) process.attach_ns = std::ranges::min(program.attached_ns);
  const std::size_t damaged = process.input->stream.damaged_records() + program.damaged_records;
  last_ns_ = std::max(last_ns_, process.input->stream.last_ns());
  if (damaged > 0) process.account->notes.push_back(fmt::format("{} event records are damaged", damaged));
  if (const std::uint64_t missing = process.input->stream.missing_bytes(); missing > 0)
    process.account->notes.push_back(fmt::format("{} bytes of events are missing", missing));
  if (const std::uint64_t untimed = process.input->stream.untimed_records(); untimed > 0)
    process.account->notes.push_back(fmt::format("{} small blocks' events have no clock and are lost", untimed));
  return records;
}

std::optional<std::uint64_t> Replay::first_event_ns(std::size_t index) const {
  return processes_.at(index)->input->stream.first_ns();
}

std::optional<Replay::Untraced> Replay::untraced(std::size_t index) const {
  const Process& process = *processes_.at(index);
  return process.exec_pending ? std::optional(process.exec) : std::nullopt;
}

// From the moment on at which the next walk may see what the program gives back. This is stamped before it is done: a
// process that lost the CPU in between goes on after the collector, which may walk it meanwhile.
void Replay::begin_walk(Process& process, std::uint64_t time_ns) {
  constexpr std::uint64_t kMostBetweenNs = 20'000'000;
  constexpr std::uint64_t kLongestNs = 60'000'000'000;  // of a walk; what says more is damaged
  if (process.space.in_walk() || process.next_walk == process.walks.size()) return;
  const Walk& walk = process.walks[process.next_walk];
  const std::uint64_t begin_ns = std::max(walk.begin_ns, walk.time_ns - std::min(walk.time_ns, kLongestNs));
  const std::uint64_t from_ns = begin_ns - std::min(begin_ns, kMostBetweenNs);
  if (time_ns < from_ns) return;
  if (process.merge) play_blocks(process, clock_.ticks_at(from_ns));
  process.space.begin_walk();
}

void Replay::play_next(Process& process) {
  if (process.next_moment < process.moments.size() &&
      process.moments[process.next_moment].time_ns == process.next_ns()) {
    trace::Poll poll = process.moments[process.next_moment++];
    if (process.killed_ns != 0 && poll.time_ns == process.killed_ns) {
      poll.rss_pages = pages_at_kill(process, poll.rss_pages);
      process.account->polls.push_back({seconds_since(settings_.origin_ns, poll.time_ns),
                                        static_cast<std::int64_t>(poll.rss_pages * process.page_bytes),
                                        static_cast<std::int64_t>(poll.shared_pages * process.page_bytes)});
    }
    if (process.merge) play_blocks(process, clock_.ticks_at(poll.time_ns));
    return estimate(process, poll);
  }
  const bool record_first = process.next_record < process.records.size() &&
                            (process.next_walk == process.walks.size() ||
                             process.records[process.next_record].time_ns <= process.walks[process.next_walk].time_ns);
  if (!record_first) {
    begin_walk(process, process.walks[process.next_walk].time_ns);
    const Walk& walk = process.walks[process.next_walk++];
    if (process.merge) play_blocks(process, clock_.ticks_at(walk.time_ns));
    on_walk(process, walk);
    process.early.reset();
    process.early_is_damaged = false;
    return process.space.final_walk();
  }
  const auto held = process.records.at(process.next_record);
  const EventRecord& record = *held;
  if (process.most_pages != 0 && !process.resident_then && record.time_ns > process.grows_from_ns)
    process.resident_then = resident_by_events(process);
  begin_walk(process, record.time_ns);
  if (process.merge && !is_description(record.kind))
    play_blocks(process, process.merge->limit_for(record, clock_.ticks_at(record.time_ns)));
  on_record(process, record);
  ++process.next_record;
}

// Exact mode: what there is to play are frames of blocks.
void Replay::count_blocks_of(Process& process) {
  if (!settings_.progress) return;
  for (const RawFrame& frame : process.input->events.frames)
    if (frame.kind == trace::FrameKind::blocks) block_bytes_ += frame.stored_bytes;
  process.merge->on_frame([this](std::uint64_t stored_bytes) {
    played_block_bytes_ += stored_bytes;
    settings_.progress(static_cast<double>(played_block_bytes_) /
                       static_cast<double>(std::max(block_bytes_, played_block_bytes_)));
  });
}

// Else in steps of a thousandth of the time that was recorded.
void Replay::report_progress(std::uint64_t now_ns) {
  if (!settings_.progress || block_bytes_ > 0 || now_ns < report_at_ns_) return;
  const std::uint64_t all_ns = std::max(last_ns_, settings_.origin_ns + 1) - settings_.origin_ns;
  report_at_ns_ = now_ns + all_ns / 1000;
  settings_.progress(
      std::min(1.0, static_cast<double>(now_ns - std::min(now_ns, settings_.origin_ns)) / static_cast<double>(all_ns)));
}

void Replay::run() {
  clock_.settle();
  find_max_rss();
  for (const auto& process : processes_) settle_end(*process);
  choose_pictures(processes_, settings_.pictures);
  const auto for_unmapped = [this](auto visit) {
    for (const auto& process : processes_)
      for (UnmappedMemory& unmapped : process->account->unmapped)
        for (UnmappedMemory::File& file : unmapped.files)
          visit(file, FileId(file.device_major, file.device_minor, file.inode));
  };
  for_unmapped([this](const UnmappedMemory::File&, FileId id) { shared_files_.emplace(id, kEmptyStack); });
  using Entry = std::pair<std::uint64_t, std::size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  for (std::size_t i = 0; i < processes_.size(); ++i)
    if (!processes_[i]->done()) queue.emplace(processes_[i]->next_ns(), i);
  while (!queue.empty()) {
    const std::size_t index = queue.top().second;
    queue.pop();
    Process& process = *processes_[index];
    const std::uint64_t limit_ns = queue.empty() ? std::numeric_limits<std::uint64_t>::max() : queue.top().first;
    do {  // go on with this process as long as it is the earliest
      report_progress(process.next_ns());
      play_next(process);
    } while (!process.done() && process.next_ns() <= limit_ns);
    if (process.done())
      finish(process);
    else
      queue.emplace(process.next_ns(), index);
  }
  finish_families();
  for_unmapped([this](UnmappedMemory::File& file, FileId id) { file.made_at = shared_files_.at(id); });
  for (const auto& process : processes_) {
    for (const auto& [name, from_ns] : process->open_phases)
      phases_.push_back({name, seconds_since(settings_.origin_ns, from_ns),
                         process->account->ended_s.value_or(seconds_since(settings_.origin_ns, last_ns_))});
    // A few blocks of every program are from before the library.
    constexpr std::uint64_t kFewPages = 16;
    if (const auto pages = std::max(process->underflowed_pages, process->lasting_underflowed_pages); pages > kFewPages)
      process->account->notes.push_back(fmt::format(
          "on {} pages more was released than allocated: blocks that were made where no hook sees it (a library opened "
          "with RTLD_DEEPBIND, an allocator called by other names); more may be live there than is shown",
          pages));
    if (process->damaged_walks > 0)
      process->account->notes.push_back(fmt::format("{} page walks are damaged", process->damaged_walks));
    process->account->unseen_s = unseen_s(*process);
    // exec begins a new mark.
    const bool ran_exec = process->records.has(RecordKind::exec);
    process->account->high_water_at_least =
        process->account->unseen_s != 0 || !process->account->teardown_s || ran_exec;
    std::ranges::stable_sort(process->account->copies, {}, &CowSlice::time_s);
    std::ranges::stable_sort(process->account->sharing, {}, &SharingChange::time_s);
  }
  std::ranges::stable_sort(phases_, {}, &Phase::from_s);
  std::ranges::stable_sort(marks_, {}, &Mark::at_s);
}

const std::vector<Replay::Process*>& Replay::with_pid(std::uint32_t pid) const {
  static const std::vector<Process*> kNone;
  const auto found = by_pid_.find(pid);
  return found == by_pid_.end() ? kNone : found->second;
}

Replay::Process* Replay::find_parent(const Process& child, std::uint32_t parent_pid) {
  Process* best = nullptr;
  for (Process* process : with_pid(parent_pid)) {
    const bool fits = process != &child && process->attached;
    if (fits && (best == nullptr || process->attach_ns > best->attach_ns)) best = process;
  }
  return best;
}

void Replay::on_attach(Process& process, const EventRecord& record) {
  if (process.next_image >= process.images.size()) return;
  ImageTables& image = *process.images[process.next_image++];
  const trace::AttachRecord& attach = image.attach();
  process.exec_pending = false;
  while (process.next_tracked < process.tracked.size() &&
         process.tracked[process.next_tracked].time_ns <= record.time_ns)
    ++process.next_tracked;  // of the image before
  const bool by_fork = attach.born == trace::Born::fork;
  const std::uint64_t page_bytes = std::max<std::uint64_t>(attach.page_bytes, 4096);
  const bool usable_page = (page_bytes & (page_bytes - 1)) == 0 && page_bytes <= 64 * 1024;
  process.page_bytes = usable_page ? page_bytes : 4096;
  AddressSpace fresh(process.page_bytes, attach.allocator == trace::Allocator::glibc);
  Process* parent = by_fork ? find_parent(process, attach.parent_pid) : nullptr;
  leave_family(process, record.time_ns);  // exec gave back what was inherited
  if (by_fork && !inherit_named_tables(image, record.time_ns, tables_) && parent != nullptr && parent->image != nullptr)
    image.inherit(*parent->image, record.time_ns);
  if (parent != nullptr) {
    if (process.fork_snapshot != nullptr) {
      process.space = std::move(*process.fork_snapshot);
      process.small.begin_as(std::move(*process.fork_small), attach.sample_bytes);
    } else {
      process.space = parent->space.forked();
      process.small.begin_as(process.shows_inherited_blocks() ? parent->small.live() : LiveSet(), attach.sample_bytes);
    }
  } else {
    process.space = std::move(fresh);
    process.small.begin(attach.sample_bytes);
  }
  process.fork_snapshot.reset();
  process.fork_small.reset();
  if (by_fork) join_family(process, parent, record.time_ns);
  process.needs_inheritance_from_walk = by_fork;
  process.attached_ns = record.time_ns;
  process.forked_from = parent;
  // Threads of the program before are gone, whatever the clocks say.
  if (process.merge && !by_fork) process.merge->skip_before_lease(record.lease);
  process.image = &image;
  process.stacks.clear();
  process.threads.clear();
  process.attached = true;
  process.walked.reset();
  process.walked_ns = 0;
  process.mapped_since.clear();
  process.has_last_walk = false;
  process.last_own = {};
  process.file_pages = {};
  process.ages.clear();
  process.last_faults = by_fork ? 0 : process.last_faults;
  if (attach.own_start < attach.own_end)
    process.space.map(attach.own_start, attach.own_end - attach.own_start, {Owner::whyrss, kEmptyStack});

  ProcessAccount& account = *process.account;
  account.traced = true;
  account.left_s.reset();
  account.born_by_fork = by_fork;
  account.allocator_stats.clear();  // of the image before an exec
  if (attach.parent_pid > 0 && attach.parent_pid < INT32_MAX) account.parent = static_cast<int>(attach.parent_pid);
  if (!image.exe().empty()) account.exe = image.exe();
  if (!image.command().empty()) account.command = image.command();
  constexpr const char* kAllocators[] = {"other", "glibc", "jemalloc", "tcmalloc", "mimalloc"};
  const auto allocator = static_cast<std::size_t>(attach.allocator);
  account.allocator = allocator < std::size(kAllocators) ? kAllocators[allocator] : "other";
  if (const std::string& version = image.python_version(); !version.empty())
    account.python = version;
  else
    account.python.reset();
}

void Replay::on_fork(Process& process, const EventRecord& record) {
  trace::ProcessRecord fork{};
  if (!read_record(record, fork)) return;
  Process* child = nullptr;
  for (Process* candidate : with_pid(fork.pid)) {
    if (candidate->attached || candidate->images.empty()) continue;
    if (candidate->images.front()->attach().parent_pid != process.input->pid) continue;
    if (candidate->images.front()->attach().born != trace::Born::fork) continue;
    if (child == nullptr || candidate->attach_ns < child->attach_ns) child = candidate;
  }
  if (child == nullptr) return;
  process.space.touched().note_fork(record.time_ns);
  child->forked_ns = record.time_ns;
  child->fork_snapshot = std::make_unique<AddressSpace>(process.space.forked());
  child->fork_small = std::make_unique<LiveSet>();
  if (child->shows_inherited_blocks()) *child->fork_small = process.small.live();
}

void Replay::on_exec(Process& process, const EventRecord& record) {
  process.exec_pending = true;
  process.exec = {.since_ns = record.time_ns, .program = {}};
  ByteReader reader(record.bytes);
  trace::TextRecord text{};
  if (!reader.take(text)) return;
  std::string program = reader.take_text(text.text_bytes);
  if (!reader.bad()) process.exec.program = std::move(program);
}

void Replay::on_text(Process& process, const EventRecord& record) {
  ByteReader reader(record.bytes);
  trace::TextRecord text{};
  if (!reader.take(text)) return;
  const std::string content = reader.take_text(text.text_bytes);
  if (reader.bad()) return;
  if (record.kind == RecordKind::note) {
    auto& notes = process.account->notes;
    if (std::ranges::find(notes, content) == notes.end()) notes.push_back(content);
    return;
  }
  const auto kind = static_cast<trace::MarkKind>(text.argument);
  if (std::exchange(process.gave_size, false))
    process.account->sized_edges_s.push_back(seconds_since(settings_.origin_ns, record.time_ns));
  if (kind == trace::MarkKind::mark) marks_.push_back({content, seconds_since(settings_.origin_ns, record.time_ns)});
  if (kind == trace::MarkKind::phase_begin) process.open_phases.emplace_back(content, record.time_ns);
  if (kind != trace::MarkKind::phase_end) return;
  auto& open = process.open_phases;
  const auto begun =
      std::find_if(open.rbegin(), open.rend(), [&](const auto& phase) { return phase.first == content; });
  if (begun == open.rend()) return;
  phases_.push_back({content, seconds_since(settings_.origin_ns, begun->second),
                     seconds_since(settings_.origin_ns, record.time_ns), process.account->pid});
  open.erase(std::next(begun).base());
}

void Replay::on_record(Process& process, const EventRecord& record) {
  last_ns_ = std::max(last_ns_, record.time_ns);
  switch (record.kind) {
    case RecordKind::attach:
      on_attach(process, record);
      break;
    case RecordKind::fork:
      on_fork(process, record);
      break;
    case RecordKind::mark:
    case RecordKind::note:
      on_text(process, record);
      break;
    case RecordKind::size:
      process.gave_size = true;
      break;
    case RecordKind::touch:
      grow_by_fault(process, record);
      [[fallthrough]];
    case RecordKind::kernel_faults:
    case RecordKind::touch_state:
      count_touch(record, process.account->touch);
      if (process.image != nullptr) take_touch(record, *process.image, process.threads, stacks_, process.space);
      break;
    case RecordKind::allocator_stats:
      take_allocator_stats(record, seconds_since(settings_.origin_ns, record.time_ns),
                           process.account->allocator_stats);
      break;
    case RecordKind::shared_file:
      if (trace::SharedFileRecord made{}; process.image != nullptr && read_record(record, made))
        if (const auto file = shared_files_.find({made.device_major, made.device_minor, made.inode});
            file != shared_files_.end() && file->second == kEmptyStack)
          file->second = process.threads.in_thread(process.image->resolve(made.stack_id).id, made.tid);
      break;
    case RecordKind::exec:
      on_exec(process, record);
      break;
    case RecordKind::exec_failed:
      process.exec_pending = false;
      break;
    case RecordKind::teardown:
    case RecordKind::exit:
      if (is_end_of_script(record)) break;
      process.account->has_left |= record.kind == RecordKind::exit;
      process.account->left_s = seconds_since(settings_.origin_ns, record.time_ns);
      if (is_undone_teardown(record)) process.account->left_s.reset();
      break;
    default:
      if (process.image == nullptr) break;
      on_memory_record(process, record);
      if (process.family == nullptr) break;
      for (const Range& range : process.space.take_dropped())
        process.family->sharing.drop(process.member, range.start, range.end,
                                     seconds_since(settings_.origin_ns, record.time_ns));
  }
}

}  // namespace whyrss
