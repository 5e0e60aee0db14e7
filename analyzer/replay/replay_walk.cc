// Replay's other half: records that change an address space, and walks.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "attribute/attribute.h"
#include "attribute/heap_pages.h"
#include "attribute/picture/page_map_bound.h"
#include "decode/page_frames.h"
#include "model/library_allocator.h"
#include "replay/replay_process.h"

namespace whyrss {

using trace::RecordKind;

namespace {

Owner owner_of(trace::MapOrigin origin, bool from_allocator) {
  if (origin == trace::MapOrigin::pymalloc) return Owner::pymalloc;
  if (origin == trace::MapOrigin::whyrss) return Owner::whyrss;
  return from_allocator ? Owner::allocator : Owner::program;
}

// Half-open page ranges of an InheritedRecord; false when it is damaged.
template <typename Visit>
bool visit_inherited(const EventRecord& record, std::uint64_t page_bytes, bool& complete, Visit visit) {
  ByteReader reader(record.bytes);
  trace::InheritedRecord inherited{};
  if (!reader.take(inherited)) return false;
  complete = inherited.complete == 1;
  for (std::uint32_t i = 0; i < inherited.run_count; ++i) {
    trace::PageRun run{};
    if (!reader.take(run)) return false;
    const std::uint64_t most_pages = (std::numeric_limits<std::uint64_t>::max() - run.start) / page_bytes;
    if (run.start % page_bytes != 0 || run.page_count > most_pages) return false;
    visit(run.start, run.start + run.page_count * page_bytes);
  }
  return true;
}

// A chunk of glibc is larger by that than what it can hold (SIZE_SZ in malloc/malloc.c, 64-bit). Of others headers lie
// apart, if there are any.
std::uint32_t block_header_bytes(const trace::AttachRecord& attach) {
  constexpr std::uint32_t kGlibcBytes = 8;
  return attach.allocator == trace::Allocator::glibc ? kGlibcBytes : 0;
}

// By the process itself.
bool is_asked(trace::WalkTrigger trigger) {
  return trigger == trace::WalkTrigger::request || trigger == trace::WalkTrigger::exit;
}

}  // namespace

// The teardown of a runtime, until the process reports its own: a process that outlives its interpreter does so.
void Replay::find_teardown(Process& process, const std::vector<EventRecord>& records) {
  std::optional<Process::TornDown>& found = process.torn_down;
  std::optional<Process::TornDown> script;
  bool reports_all = false;  // older recordings do not tell the end of a process
  for (const EventRecord& record : records) {
    if (record.kind == RecordKind::attach) found = script = std::nullopt;
    if (record.kind == RecordKind::exit && found) found->ended = reports_all;
    trace::ProcessRecord reported{};
    if (record.kind != RecordKind::teardown || !read_record(record, reported)) continue;
    reports_all = reported.status != 0;
    const Process::TornDown now{.time_ns = record.time_ns,
                                .unmoved = (reported.status & trace::Teardown::unmoved) != 0};
    if (is_undone_teardown(record))
      found = script = std::nullopt;
    else if (is_end_of_script(record))
      script = now;
    else
      found = script && (reported.status & trace::Teardown::script) != 0 ? script : now;
  }
}

// Whether a walk after a process began to take itself down shows what it held then: it asked for that walk and waited
// for it, or no event says that it gave anything back before.
bool Replay::shows_begin_of_teardown(const Process& process, const Walk& walk) {
  const auto [time_ns, unmoved, ended] = *process.torn_down;
  return is_asked(walk.trigger) || (!unmoved && !has_given_back(process, time_ns, walk.time_ns));
}

// A process that takes itself down frees and unmaps what the program held to its end. The collector stops walking as
// soon as it knows; a walk before that says nothing, unless it shows the begin.
void Replay::leave_out_teardown(Process& process) {
  if (!process.torn_down) return;
  const std::uint64_t from_ns = process.torn_down->time_ns;
  const auto says_nothing = [&](const Walk& walk) {
    return walk.time_ns >= from_ns && walk.begin_ns < from_ns + kTeardownNs && !shows_begin_of_teardown(process, walk);
  };
  if (!std::ranges::all_of(process.walks, says_nothing)) std::erase_if(process.walks, says_nothing);
}

// With the walk that shows what it held then. Nothing: it lived on.
std::optional<std::uint64_t> Replay::teardown_ns(const Process& process) {
  if (!process.torn_down) return std::nullopt;
  const auto [time_ns, unmoved, ended] = *process.torn_down;
  const std::uint64_t until_ns = time_ns + kTeardownNs;
  const auto is_later = [until = until_ns](const Walk& walk) { return walk.begin_ns >= until; };
  if (!ended && std::ranges::any_of(process.walks, is_later)) return std::nullopt;
  // The one that it asked for and waited for: another may have been on its way.
  const auto first_walk = [&, from = time_ns, until = until_ns](auto is_wanted) {
    return std::ranges::find_if(process.walks, [&](const Walk& walk) {
      return walk.begin_ns >= from && walk.begin_ns < until && is_wanted(walk);
    });
  };
  auto its_walk = first_walk([&, from = time_ns](const Walk& walk) {
    return is_asked(walk.trigger) && !has_given_back(process, from, walk.time_ns);
  });
  if (its_walk == process.walks.end())
    its_walk = first_walk([&](const Walk& walk) { return shows_begin_of_teardown(process, walk); });
  return unmoved || its_walk == process.walks.end() ? time_ns : its_walk->time_ns;
}

MappingInfo Replay::mapping_of(Process& process, std::uint32_t stack_id) const {
  const ResolvedStack stack = process.image->resolve(stack_id);
  return {owner_of(trace::MapOrigin::program, stack.from_allocator), stack.id};
}

static_assert(kFollowedBlockBytes == trace::kLibraryBlockBytes);
static_assert(kMostSampledBlockBytes == trace::kAlwaysLoggedBytes);

// Blocks that stand for others are known as small ones are; all else that comes here is large.
void Replay::on_block_record(Process& process, const EventRecord& record) {
  trace::BlockRecord block{};
  if (!read_record(record, block)) return;
  AddressSpace& space = process.space;
  if (record.kind == RecordKind::allocate || record.kind == RecordKind::library_allocate) {
    const StackId stack = process.threads.in_thread(process.image->resolve(block.stack_id).id, block.tid);
    if (block.sampled_bytes > 0 && process.small.allocate(block, stack)) return;
    process.small.forget(block.address, block.size_bytes);
    const Owner mapper = record.kind == RecordKind::library_allocate ? Owner::library : Owner::allocator;
    if (mapper == Owner::library) settings_.see_allocator(stack);
    space.touched().begin_block(block.address, block.size_bytes, record.time_ns);
    if (!space.gives_back(block.address, block.size_bytes) ||
        next_walk_shows(process, block.address, block.size_bytes, true))
      space.allocate(block.address, block.size_bytes, stack, mapper);
    else
      space.allocate_after_walk(block.address, block.size_bytes, stack, mapper);
  } else if (record.kind == RecordKind::release) {
    if (!process.small.release(block.address, block.tid)) space.release(block.address, block.tid);
  } else if (!process.small.undo_release(block.address, block.tid)) {
    space.undo_release(block.address, block.tid);
  }
}

// Valid until the walk is played; nullptr: there is none, or it is damaged.
const WalkedPages* Replay::peek_next_walk(Process& process) {
  if (process.next_walk == process.walks.size()) return nullptr;
  if (!process.early && !process.ahead && !process.early_is_damaged) {
    process.early = read_walk(payload_of(process, *process.walks[process.next_walk].frame));
    process.early_is_damaged = !process.early;
  }
  const std::optional<WalkedPages>& pages = process.ahead ? process.ahead : process.early;
  return pages ? &*pages : nullptr;
}

// Of addresses that were given back while the walk went on and taken for something else. Its list of mappings was read
// at its beginning: one of another kind than what is there now is the one from before.
bool Replay::next_walk_shows(Process& process, std::uint64_t start, std::uint64_t size_bytes, bool anonymous) {
  const WalkedPages* pages = peek_next_walk(process);
  if (pages == nullptr) return true;
  const std::uint64_t end = start + std::min(size_bytes, std::numeric_limits<std::uint64_t>::max() - start);
  auto vma = std::ranges::upper_bound(pages->vmas, start, {}, &Vma::end);
  for (; vma != pages->vmas.end() && vma->start < end; ++vma)
    if (is_private_anonymous(*vma) != anonymous) return false;
  return true;
}

// Stamped when the pages were gone.
void Replay::drop_pages(Process& process, const trace::RangeRecord& range) {
  if (process.space.in_walk() && range.header.time_ns >= process.walks[process.next_walk].begin_ns)
    process.space.drop_pages_after_walk(range.address, range.size_bytes);
  else
    process.space.drop_pages(range.address, range.size_bytes);
}

void Replay::on_memory_record(Process& process, const EventRecord& record) {
  AddressSpace& space = process.space;
  switch (record.kind) {
    case RecordKind::allocate:
    case RecordKind::library_allocate:
    case RecordKind::release:
    case RecordKind::release_undone:
      on_block_record(process, record);
      return;
    case RecordKind::map: {
      trace::MapRecord map{};
      if (!read_record(record, map)) return;
      const ResolvedStack stack = process.image->resolve(map.stack_id);
      const MappingInfo info{owner_of(map.origin, stack.from_allocator), process.threads.in_thread(stack.id, map.tid)};
      const bool anonymous = (map.flags & MAP_ANONYMOUS) != 0 && (map.flags & MAP_SHARED) == 0;
      if (anonymous && (map.flags & MAP_NORESERVE) != 0) settings_.see_allocator(info.stack);
      if (!space.gives_back(map.address, map.size_bytes) ||
          next_walk_shows(process, map.address, map.size_bytes, anonymous))
        space.map(map.address, map.size_bytes, info);
      else
        space.map_after_walk(map.address, map.size_bytes, info);
      process.small.forget(map.address, map.size_bytes);
      note_mapping(process, map);
      process.forget_file_pages(record, map.address, map.size_bytes);
      return;
    }
    case RecordKind::unmap:
    case RecordKind::advise:
    case RecordKind::break_moved: {
      trace::RangeRecord range{};
      if (!read_record(record, range)) return;
      if (record.kind != RecordKind::break_moved) process.forget_file_pages(record, range.address, range.size_bytes);
      if (record.kind == RecordKind::unmap) {
        space.unmap(range.address, range.size_bytes);
        process.small.forget(range.address, range.size_bytes);
      } else if (record.kind == RecordKind::break_moved) {
        MappingInfo mover = mapping_of(process, range.stack_id);
        // Before stacks can be taken no code of the program runs: tcmalloc gets its first memory.
        if (mover.stack == kEmptyStack) mover.owner = Owner::allocator;
        space.move_break(range.size_bytes, range.address, mover);
        if (range.address < range.size_bytes) process.small.forget(range.address, range.size_bytes - range.address);
      } else if (range.argument == MADV_DONTNEED || range.argument == MADV_REMOVE) {
        drop_pages(process, range);
      } else if (range.argument == MADV_FREE) {
        space.give_up_pages(range.address, range.size_bytes, process.image->resolve(range.stack_id).id);
      }
      return;
    }
    case RecordKind::remap: {
      trace::RemapRecord remap{};
      if (!read_record(record, remap)) return;
      const StackId stack = process.image->resolve(remap.stack_id).id;
      process.small.forget(remap.old_address, remap.old_size_bytes);
      process.small.forget(remap.new_address, remap.new_size_bytes);
      process.forget_file_pages(record, remap.old_address, remap.old_size_bytes);
      process.forget_file_pages(record, remap.new_address, remap.new_size_bytes);
      space.remap(remap.old_address, remap.old_size_bytes, remap.new_address, remap.new_size_bytes, stack);
      constexpr std::uint32_t kDontUnmap = 4;  // MREMAP_DONTUNMAP, Linux 5.7: the old range stays, empty
      if ((remap.flags & kDontUnmap) != 0 && remap.old_address != remap.new_address)
        space.map(remap.old_address, remap.old_size_bytes, {Owner::program, stack});
      return;
    }
    case RecordKind::inherited: {
      bool complete = false;
      const double time_s = seconds_since(settings_.origin_ns, record.time_ns);
      Process* const parent = process.family != nullptr ? process.forked_from : nullptr;
      const bool knows_parent = parent != nullptr && parent->family == process.family;  // it runs the same image yet
      const std::uint64_t fork_ns = process.forked_ns != 0 ? process.forked_ns : process.attached_ns;
      const bool whole =
          visit_inherited(record, process.page_bytes, complete, [&](std::uint64_t start, std::uint64_t end) {
            space.inherit(start, end);
            if (process.family != nullptr) process.family->sharing.share(process.member, start, end, time_s);
            if (knows_parent) parent->space.touched().note_inherited(start, end, fork_ns);
          });
      if (!whole || !complete) return;
      process.needs_inheritance_from_walk = false;
      space.touched().keep_inherited(space.inheritance().ranges(), process.attached_ns);
      return;
    }
    case RecordKind::thread_creator: {
      if (trace::ThreadCreatorRecord thread{}; read_record(record, thread))
        process.threads.create(thread.tid, thread.creator_tid);
      return;
    }
    case RecordKind::thread: {
      trace::ThreadRecord thread{};
      if (!read_record(record, thread)) return;
      const StackId starter = process.image->resolve(thread.stack_id).id;
      process.threads.start(thread.tid, starter);
      space.start_thread(thread.stack_pointer, thread.thread_pointer, starter);
      return;
    }
    default:
      return;  // protect changes no ownership; definitions were read before
  }
}

void Replay::on_walk(Process& process, const Walk& walk) {
  last_ns_ = std::max(last_ns_, walk.time_ns);
  const bool seen_ahead = process.ahead.has_value();
  std::optional<WalkedPages> pages = std::exchange(seen_ahead ? process.ahead : process.early, std::nullopt);
  if (!pages) pages = read_walk(payload_of(process, *walk.frame));
  if (!pages) {
    ++process.damaged_walks;
    return;
  }
  // A process that ended meanwhile shows less than it held; better the walk before.
  if (pages->partial && !process.account->accounts.empty()) return;
  const double time_s = seconds_since(settings_.origin_ns, walk.time_ns);
  const bool traced = process.image != nullptr && !process.exec_pending;
  std::optional<double>& left_s = process.account->left_s;
  if (left_s && time_s > *left_s + static_cast<double>(kTeardownNs) / 1e9) left_s.reset();  // it lives on
  TouchFigures& touch = process.account->touch;
  touch.all_faults = pages->minor_faults;
  touch.sampled_of_all = touch.faults + touch.missed;
  if (traced && !pages->smaps_only && !pages->partial) observe_sharing(process, walk, *pages, seen_ahead);
  std::int64_t& gone_bytes = process.account->file_bytes_gone;
  if (traced)
    gone_bytes += std::min(process.file_pages.observe(*pages), std::numeric_limits<std::int64_t>::max() - gone_bytes);

  Evidence evidence{.time_s = time_s,
                    .skewed = pages->skewed || pages->partial,
                    .traced = traced,
                    .pool_path = settings_.pool_path,
                    .vmas = std::move(pages->vmas),
                    .runs = std::move(pages->runs),
                    .owned = {},
                    .held_blocks = {},
                    .thread_stacks = {},
                    .inherited = {},
                    .ancestor_owned = {},
                    .live_pages = {},
                    .touched = {},
                    .huge_zeros = {},
                    .lazy_free = {},
                    .names = names_};
  if (traced) {
    AddressSpace& space = process.space;
    const trace::AttachRecord& attach = process.image->attach();
    evidence.exact_blocks = attach.mode == trace::Mode::exact;
    if (evidence.exact_blocks || attach.sample_bytes > 0) evidence.small_blocks = &process.small.live();
    evidence.block_header_bytes = block_header_bytes(attach);
    for (const Vma& vma : evidence.vmas)
      if (vma.path == "[heap]") space.see_heap({vma.start, vma.end});
    evidence.owned = space.owned();
    evidence.held_blocks = space.held_blocks();
    evidence.thread_stacks = space.thread_stacks(evidence.vmas);
    if (!pages->smaps_only) evidence.inherited = space.inheritance().ranges();
    if (!evidence.inherited.empty()) evidence.ancestor_owned = space.ancestor_owned();
    if (!pages->smaps_only && !pages->partial)
      evidence.touched = space.touched().observe(
          {.begin_ns = pages->begin_ns, .vmas = evidence.vmas, .runs = evidence.runs, .inherited = evidence.inherited});
    take_liveness(process, walk.time_ns, evidence);
    take_views(process, walk.time_ns, time_s);
    take_huge_pages(process, walk.time_ns, evidence);
    if (!pages->smaps_only) take_lazy_free(process, walk.time_ns, evidence);
  }
  if (settings_.see_evidence) settings_.see_evidence(process.account->pid, evidence);
  const bool is_whole = !pages->smaps_only && !pages->partial;
  if (!process.pictured.empty() && is_whole) process.ages.observe(evidence.runs, time_s);
  const auto number = static_cast<std::size_t>(&walk - process.walks.data());
  PageMap picture;
  const auto pictured = is_whole ? process.pictured.find(number) : process.pictured.end();
  const bool is_pictured = pictured != process.pictured.end();
  process.account->accounts.push_back(attribute(evidence, is_pictured ? &picture : nullptr));
  if (is_pictured) {
    finish_picture(picture, process.ages.ages(), pictured->second);
    process.account->accounts.back().picture = std::make_shared<const PageMap>(std::move(picture));
  }
  process.account->accounts.back().asked = walk.trigger == trace::WalkTrigger::request;
  if (is_whole) keep_walk(process, std::move(evidence), walk);
}

}  // namespace whyrss
