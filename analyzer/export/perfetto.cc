// A Perfetto trace (perfetto_trace.proto): the causes and RSS of each process as counters over time, phases and marks,
// and one heap profile per process and cause with its stacks, at the interval's end.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <protozero/pbf_builder.hpp>
#include <set>
#include <tuple>

#include "export/export_format.h"
#include "report/view/blame.h"
#include "report/wording/format.h"

namespace whyrss {
namespace {

enum class TraceField : protozero::pbf_tag_type { packet = 1 };
enum class PacketField : protozero::pbf_tag_type {
  clock_snapshot = 6,
  timestamp = 8,
  sequence_id = 10,
  track_event = 11,
  interned_data = 12,
  sequence_flags = 13,
  profile_packet = 37,
  track_descriptor = 60,
};
enum class ClocksField : protozero::pbf_tag_type { clocks = 1 };
enum class ClockField : protozero::pbf_tag_type { clock_id = 1, timestamp = 2 };
enum class TrackField : protozero::pbf_tag_type { uuid = 1, name = 2, process = 3, parent_uuid = 5, counter = 8 };
enum class ProcessField : protozero::pbf_tag_type { pid = 1, cmdline = 2, process_name = 6 };
enum class CounterField : protozero::pbf_tag_type { unit = 3 };
enum class EventField : protozero::pbf_tag_type { type = 9, track_uuid = 11, name = 23, counter_value = 30 };
enum class InternedField : protozero::pbf_tag_type {
  function_names = 5,
  frames = 6,
  callstacks = 7,
  mapping_paths = 17,
  source_paths = 18,
  mappings = 19,
};
enum class StringField : protozero::pbf_tag_type { iid = 1, str = 2 };
enum class MappingField : protozero::pbf_tag_type { iid = 1, path_string_ids = 7 };
enum class FrameField : protozero::pbf_tag_type {
  iid = 1,
  function_name_id = 2,
  mapping_id = 3,
  rel_pc = 4,
  source_path_iid = 5,
  line_number = 6,
};
enum class CallstackField : protozero::pbf_tag_type { iid = 1, frame_ids = 2 };
enum class ProfileField : protozero::pbf_tag_type { process_dumps = 5, index = 7 };
enum class DumpField : protozero::pbf_tag_type { pid = 1, samples = 2, timestamp = 9, heap_name = 11 };
enum class HeapSampleField : protozero::pbf_tag_type { callstack_id = 1, self_allocated = 2, self_freed = 3 };

template <typename Field>
using Builder = protozero::pbf_builder<Field>;

constexpr std::uint32_t kSequence = 1, kStateCleared = 1, kNeedsState = 2;
constexpr std::uint32_t kRealtime = 1, kMonotonicCoarse = 4, kBoottime = 6;
constexpr std::int32_t kUnitBytes = 3;
enum EventType : std::int32_t { slice_begin = 1, slice_end = 2, instant = 3, counter = 4 };

// Zero is no time to Perfetto.
std::uint64_t nanoseconds(double time_s) { return static_cast<std::uint64_t>(std::llround(time_s * 1e9)) + 1; }

// Tables by their own numbers from 1 on, written before what refers to them.
class InternedTables {
 public:
  explicit InternedTables(const StackTable& stacks) : stacks_(stacks) {}

  std::uint64_t callstack(const ExportRow& row) {
    std::vector<std::uint64_t> frames;
    const std::vector<FrameId>& ids = stacks_[row.site->stack];
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) frames.push_back(frame(*id));
    if (frames.empty()) frames.push_back(named_frame(std::string(kNoLine)));
    if (!row.site->mapping().empty()) frames.push_back(named_frame(printable(row.site->mapping())));
    const auto [known, is_new] = callstacks_.try_emplace(frames, callstacks_.size() + 1);
    if (!is_new) return known->second;
    Builder<CallstackField> message(interned_, InternedField::callstacks);
    message.add_uint64(CallstackField::iid, known->second);
    for (const std::uint64_t number : frames) message.add_uint64(CallstackField::frame_ids, number);
    return known->second;
  }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  using Strings = std::map<std::string, std::uint64_t>;

  std::uint64_t string(Strings& strings, InternedField field, const std::string& text) {
    const auto [known, is_new] = strings.try_emplace(text, strings.size() + 1);
    if (!is_new) return known->second;
    Builder<StringField> message(interned_, field);
    message.add_uint64(StringField::iid, known->second);
    message.add_bytes(StringField::str, text);
    return known->second;
  }

  // Readers before version 50 take no frame without one.
  std::uint64_t mapping(const std::string& path) {
    const std::uint64_t path_id = string(paths_, InternedField::mapping_paths, path);
    if (!mappings_.insert(path_id).second) return path_id;
    Builder<MappingField> message(interned_, InternedField::mappings);
    message.add_uint64(MappingField::iid, path_id);
    message.add_uint64(MappingField::path_string_ids, path_id);
    return path_id;
  }

  std::uint64_t add_frame(const std::string& name, const std::string& module, std::uint64_t address,
                          const ExportFrame& source) {
    const std::uint64_t name_id = string(names_, InternedField::function_names, name);
    const std::uint64_t mapping_id = mapping(module);
    const auto [known, is_new] = frames_.try_emplace({name_id, mapping_id, address}, frames_.size() + 1);
    if (!is_new) return known->second;
    const std::uint64_t file = source.file.empty() ? 0 : string(files_, InternedField::source_paths, source.file);
    Builder<FrameField> message(interned_, InternedField::frames);
    message.add_uint64(FrameField::iid, known->second);
    message.add_uint64(FrameField::function_name_id, name_id);
    message.add_uint64(FrameField::mapping_id, mapping_id);
    message.add_uint64(FrameField::rel_pc, address);
    if (file != 0) message.add_uint64(FrameField::source_path_iid, file);
    if (source.line > 0) message.add_uint32(FrameField::line_number, static_cast<std::uint32_t>(source.line));
    return known->second;
  }

  // Python: the file in place of a module, and the line in place of an address.
  std::uint64_t frame(FrameId id) {
    const Frame& frame = stacks_[id];
    const ExportFrame shown = export_frame(stacks_, id);
    const bool has_place = !shown.file.empty() && shown.line > 0;
    const std::string name =
        has_place ? fmt::format("{} ({}:{})", shown.function, base_name(shown.file), shown.line) : shown.function;
    const bool is_native = frame.kind == FrameKind::native;
    return add_frame(name, is_native ? printable(stacks_[frame.module].path) : shown.file,
                     is_native ? frame.address : static_cast<std::uint64_t>(shown.line), shown);
  }

  std::uint64_t named_frame(const std::string& name) { return add_frame(name, "", 0, {}); }

  const StackTable& stacks_;
  std::string bytes_;
  Builder<InternedField> interned_{bytes_};
  Strings names_, paths_, files_;
  std::set<std::uint64_t> mappings_;
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>, std::uint64_t> frames_;
  std::map<std::vector<std::uint64_t>, std::uint64_t> callstacks_;
};

class TraceWriter {
 public:
  TraceWriter(const ExportRequest& request, const ByteSink& write)
      : view_(*request.view), value_(request.value), write_(write) {}

  void write() {
    add_clocks();
    add_phases();
    for (const ProcessView& process : view_.processes) add_process(process);
    add_profiles();
  }

 private:
  using Packet = Builder<PacketField>;

  // `fill` adds what the packet is about.
  template <typename Fill>
  void packet(Fill fill) {
    std::string bytes;
    Builder<TraceField> trace(bytes);
    {
      Packet packet(trace, TraceField::packet);
      packet.add_uint32(PacketField::sequence_id, kSequence);
      fill(packet);
    }
    write_(bytes);
  }

  // Times count from the begin of the recording; real time says when that was.
  void add_clocks() {
    packet([&](Packet& packet) {
      packet.add_uint32(PacketField::sequence_flags, kStateCleared);
      Builder<ClocksField> snapshot(packet, PacketField::clock_snapshot);
      const auto add = [&](std::uint32_t id, std::int64_t time_ns) {
        Builder<ClockField> clock(snapshot, ClocksField::clocks);
        clock.add_uint32(ClockField::clock_id, id);
        clock.add_uint64(ClockField::timestamp, static_cast<std::uint64_t>(time_ns));
      };
      add(kBoottime, 1);
      add(kMonotonicCoarse, 1);
      add(kRealtime, started_ns(view_.recording->info) + 1);
    });
  }

  std::uint64_t add_track(std::uint64_t parent, const std::string& name, bool is_counter) {
    const std::uint64_t uuid = next_track_++;
    packet([&](Packet& packet) {
      Builder<TrackField> track(packet, PacketField::track_descriptor);
      track.add_uint64(TrackField::uuid, uuid);
      track.add_string(TrackField::name, name);
      if (parent != 0) track.add_uint64(TrackField::parent_uuid, parent);
      if (!is_counter) return;
      Builder<CounterField> counts(track, TrackField::counter);
      counts.add_enum(CounterField::unit, kUnitBytes);
    });
    return uuid;
  }

  template <typename Fill>
  void event(double time_s, EventType type, std::uint64_t track, Fill fill) {
    packet([&](Packet& packet) {
      packet.add_uint64(PacketField::timestamp, nanoseconds(time_s));
      Builder<EventField> event(packet, PacketField::track_event);
      event.add_enum(EventField::type, type);
      event.add_uint64(EventField::track_uuid, track);
      fill(event);
    });
  }

  void count(double time_s, std::uint64_t track, std::int64_t bytes) {
    event(time_s, EventType::counter, track,
          [&](Builder<EventField>& event) { event.add_int64(EventField::counter_value, bytes); });
  }

  void add_phases() {
    const auto name_it = [](const std::string& name) {
      return [&name](Builder<EventField>& event) { event.add_string(EventField::name, printable(name)); };
    };
    for (const Phase& phase : view_.recording->phases) {  // may overlap: each on a track of its own
      const std::uint64_t track = add_track(0, "phases", false);
      event(phase.from_s, EventType::slice_begin, track, name_it(phase.name));
      event(phase.to_s, EventType::slice_end, track, [](Builder<EventField>& /*event*/) {});
    }
    if (view_.recording->marks.empty()) return;
    const std::uint64_t track = add_track(0, "marks", false);
    for (const Mark& mark : view_.recording->marks) event(mark.at_s, EventType::instant, track, name_it(mark.name));
  }

  std::uint64_t add_process_track(const ProcessAccount& process) {
    const std::uint64_t uuid = next_track_++;
    packet([&](Packet& packet) {
      Builder<TrackField> track(packet, PacketField::track_descriptor);
      track.add_uint64(TrackField::uuid, uuid);
      Builder<ProcessField> about(track, TrackField::process);
      about.add_int32(ProcessField::pid, process.pid);
      for (const std::string& word : process.command) about.add_string(ProcessField::cmdline, printable(word));
      about.add_string(ProcessField::process_name, process_label(process));
    });
    return uuid;
  }

  void add_process(const ProcessView& process) {
    const std::uint64_t parent = add_process_track(*process.account);
    const std::vector<CauseMoment> moments = cause_moments(process);
    for (const CauseView& cause : process.causes) {
      const std::uint64_t track = add_track(parent, slug_of(cause.cause), true);
      for (const CauseMoment& moment : moments)
        count(moment.time_s, track, moment.bytes.at(static_cast<std::size_t>(cause.cause)));
    }
    const std::uint64_t track = add_track(parent, "rss as polled", true);
    for (const RssPoint& poll : process.account->polls)
      if (poll.time_s >= process.interval.from_s && poll.time_s <= process.interval.to_s)
        count(poll.time_s, track, poll.rss_bytes);
  }

  struct Sample {
    std::uint64_t callstack = 0;
    std::int64_t bytes = 0;
  };

  void add_profiles() {
    InternedTables tables(view_.recording->stacks);
    std::map<std::pair<const ProcessView*, const CauseView*>, std::map<std::uint64_t, std::int64_t>> heaps;
    for (const ExportRow& row : export_rows(view_))
      if (const std::int64_t bytes = row.value(value_); bytes != 0)
        heaps[{row.process, row.cause}][tables.callstack(row)] += bytes;
    packet([&](Packet& packet) {
      packet.add_uint32(PacketField::sequence_flags, kNeedsState);
      packet.add_message(PacketField::interned_data, tables.bytes());
    });
    std::uint64_t index = 0;
    for (const auto& [heap, samples] : heaps) add_profile(*heap.first, *heap.second, samples, index++);
  }

  void add_profile(const ProcessView& process, const CauseView& cause,
                   const std::map<std::uint64_t, std::int64_t>& samples, std::uint64_t index) {
    const std::uint64_t time_ns = nanoseconds(process.at_last ? process.at_last->time_s : process.interval.to_s);
    packet([&](Packet& packet) {
      packet.add_uint64(PacketField::timestamp, time_ns);
      packet.add_uint32(PacketField::sequence_flags, kNeedsState);
      Builder<ProfileField> profile(packet, PacketField::profile_packet);
      profile.add_uint64(ProfileField::index, index);
      Builder<DumpField> dump(profile, ProfileField::process_dumps);
      dump.add_uint64(DumpField::pid, static_cast<std::uint64_t>(process.account->pid));
      dump.add_uint64(DumpField::timestamp, time_ns);
      dump.add_string(DumpField::heap_name, slug_of(cause.cause));
      for (const auto& [callstack, bytes] : samples) {
        Builder<HeapSampleField> sample(dump, DumpField::samples);
        sample.add_uint64(HeapSampleField::callstack_id, callstack);
        // What shrank was given back.
        sample.add_uint64(bytes >= 0 ? HeapSampleField::self_allocated : HeapSampleField::self_freed,
                          static_cast<std::uint64_t>(std::abs(bytes)));
      }
    });
  }

  const View& view_;
  ExportValue value_;
  const ByteSink& write_;
  std::uint64_t next_track_ = 1;
};

}  // namespace

std::vector<std::string> write_perfetto(const ExportRequest& request, const ByteSink& write) {
  TraceWriter(request, write).write();
  return {};
}

}  // namespace whyrss
