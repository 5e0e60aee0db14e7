#include "decode/page_frames.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "decode/bytes.h"
#include "decode/cgroup_frames.h"
#include "decode/json_values.h"
#include "decode/oom_log.h"
#include "decode/page_walk_reader.h"
#include "procfs/process_stat.h"
#include "procfs/smaps.h"
#include "shim/trace/recording_format.h"

namespace whyrss {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMostPages = std::uint64_t{1} << 48;
constexpr std::int64_t kMostLiveBytes = std::int64_t{1} << 56;
constexpr double kSameMomentS = 0.25;

std::optional<UnmappedMemory> unmapped_of(const json& object, double time_s) {
  UnmappedMemory unmapped{.time_s = time_s, .bytes = json_integer(object, "bytes")};
  if (unmapped.bytes && *unmapped.bytes < 0) return std::nullopt;
  unmapped.count = json_integer(object, "count").value_or(0);
  if (const auto list = object.find("files"); list != object.end() && list->is_array())
    for (const json& file : *list)
      if (file.is_object())
        unmapped.files.push_back({.name = json_text(file, "name"),
                                  .bytes = json_integer(file, "bytes").value_or(0),
                                  .device_major = static_cast<std::uint32_t>(json_integer(file, "major").value_or(0)),
                                  .device_minor = static_cast<std::uint32_t>(json_integer(file, "minor").value_or(0)),
                                  .inode = static_cast<std::uint64_t>(json_integer(file, "inode").value_or(0))});
  return unmapped;
}

class Reader {
 public:
  explicit Reader(std::uint64_t origin_ns) : origin_ns_(origin_ns) {}

  void read(const RawFrame& frame) {
    out_.last_ns = std::max(out_.last_ns, frame.time_ns);
    if (!read_payload(frame)) ++out_.damaged_frames;
  }

  PageFrames finish() {
    std::ranges::stable_sort(out_.account.polls, {}, &RssPoint::time_s);
    std::ranges::stable_sort(out_.account.live_polls, {}, &LivePoint::time_s);
    std::ranges::stable_sort(out_.account.totals, {}, &KernelTotals::time_s);
    std::ranges::stable_sort(out_.account.dirty_files, {}, &DirtyFiles::time_s);
    std::ranges::stable_sort(out_.account.file_sizes, {}, &FileSizes::time_s);
    std::ranges::stable_sort(out_.account.unmapped, {}, &UnmappedMemory::time_s);
    return std::move(out_);
  }

 private:
  bool read_payload(const RawFrame& frame) {
    using enum trace::FrameKind;
    switch (frame.kind) {
      case polls:
      case live_polls:
        return read_polls(frame);
      case smaps:
      case rollup:
      case status:
        return read_text(frame);
      case process:
      case ended:
      case note:
      case counters:
      case cgroup:
      case file_sizes:
      case unmapped:
        return read_json(frame);
      default:
        return true;  // walks are read elsewhere; kinds of later versions are skipped
    }
  }

  // Of either kind.
  bool read_polls(const RawFrame& frame) {
    ByteReader reader(frame.payload);
    while (!reader.rest().empty()) {
      trace::Poll poll{};
      trace::LivePoll live{};
      if (frame.kind == trace::FrameKind::live_polls) {
        if (!reader.take(live) || live.live_bytes > kMostLiveBytes || live.live_bytes < -kMostLiveBytes) return false;
        out_.account.live_polls.push_back({seconds_since(origin_ns_, live.time_ns), live.live_bytes});
        continue;
      }
      if (!reader.take(poll) || poll.rss_pages > kMostPages) return false;
      out_.account.polls.push_back(
          {seconds_since(origin_ns_, poll.time_ns), static_cast<std::int64_t>(poll.rss_pages) * page_bytes_,
           static_cast<std::int64_t>(std::min(poll.shared_pages, poll.rss_pages)) * page_bytes_});
    }
    return true;
  }

  KernelTotals& totals_at(double time_s) {
    auto& totals = out_.account.totals;
    for (auto at = totals.rbegin(); at != totals.rend(); ++at)
      if (std::abs(at->time_s - time_s) < kSameMomentS) return *at;
    totals.emplace_back().time_s = time_s;
    return totals.back();
  }

  // For a reading of PSS: each keeps its own time, as relatives that map the same pages change it from one to the next.
  KernelTotals& unread_totals_at(double time_s) {
    KernelTotals& totals = totals_at(time_s);
    if (!totals.pss_bytes) return totals;
    out_.account.totals.emplace_back().time_s = time_s;
    return out_.account.totals.back();
  }

  static void put_smaps(const SmapsEntry& sums, KernelTotals& totals) {
    totals.rss_bytes = sums.rss_bytes;
    totals.pss_bytes = sums.pss_bytes;
    totals.uss_bytes = sums.uss_bytes();
    totals.swap_bytes = sums.swap_bytes;
    totals.hugetlb_bytes = sums.hugetlb_bytes;
    totals.anonymous_bytes = sums.anonymous_bytes;
    totals.pss_anonymous_bytes = sums.pss_anonymous_bytes;
    totals.pss_file_bytes = sums.pss_file_bytes;
    totals.pss_shmem_bytes = sums.pss_shmem_bytes;
  }

  static SmapsEntry sum_of(const std::vector<SmapsEntry>& entries) {
    SmapsEntry sum;
    for (const SmapsEntry& entry : entries) {
      sum.rss_bytes += entry.rss_bytes;
      sum.pss_bytes += entry.pss_bytes;
      sum.private_clean_bytes += entry.private_clean_bytes;
      sum.private_dirty_bytes += entry.private_dirty_bytes;
      sum.swap_bytes += entry.swap_bytes;
      sum.hugetlb_bytes += entry.hugetlb_bytes;
      sum.anonymous_bytes += entry.anonymous_bytes;
    }
    return sum;
  }

  static bool is_locked(const SmapsEntry& entry) {
    return (" " + entry.vm_flags + " ").find(" lo ") != std::string::npos;
  }

  // What can be dirty by this process's doing. A read-only mapping of a file that was just written shows that file's
  // dirty pages too.
  static DirtyFiles dirty_files(const std::vector<SmapsEntry>& entries, double time_s) {
    DirtyFiles dirty{.time_s = time_s, .bytes = {}};
    for (const SmapsEntry& entry : entries) {
      const std::int64_t cached = entry.rss_bytes - entry.anonymous_bytes;
      if (cached > 0 && entry.range.path.starts_with('/') && is_locked(entry))
        dirty.locked[file_name(entry.range.path, Backing::file)] += cached;
      const std::int64_t bytes = entry.shared_dirty_bytes + entry.private_dirty_bytes;
      if (bytes > 0 && entry.range.shared && entry.range.writable && entry.range.path.starts_with('/'))
        dirty.bytes[file_name(entry.range.path, Backing::file)] += bytes;
    }
    return dirty;
  }

  bool read_text(const RawFrame& frame) {
    ByteReader reader(frame.payload);
    trace::TextHeader header{};
    if (!reader.take(header)) return false;
    const std::string content = reader.take_text(header.text_bytes);
    if (reader.bad()) return false;
    const double time_s = seconds_since(origin_ns_, header.time_ns);
    if (frame.kind == trace::FrameKind::status) {
      read_status(content, time_s);
    } else if (frame.kind == trace::FrameKind::rollup) {
      if (const auto sums = parse_smaps_rollup(content)) put_smaps(*sums, unread_totals_at(time_s));
    } else if (const auto entries = parse_smaps(content); !entries.empty()) {
      KernelTotals& totals = totals_at(time_s);
      if (!totals.pss_bytes) put_smaps(sum_of(entries), totals);
      out_.account.dirty_files.push_back(dirty_files(entries, time_s));
    }
    return true;
  }

  // Fields of status are in kB.
  void read_status(const std::string& content, double time_s) {
    constexpr std::int64_t kKilo = 1024, kMostKilos = std::int64_t{1} << 50;
    const auto bytes = [&](const char* name) -> std::optional<std::int64_t> {
      const auto value = status_value(content, name);
      if (!value || *value < 0 || *value > kMostKilos) return std::nullopt;
      return *value * kKilo;
    };
    if (const auto peak = bytes("VmHWM"))
      out_.account.high_water_bytes = std::max(out_.account.high_water_bytes, *peak);
    const auto tables = bytes("VmPTE");
    const auto swap = bytes("VmSwap");
    const auto hugetlb = bytes("HugetlbPages");
    if (!tables && !swap && !hugetlb) return;
    KernelTotals& totals = totals_at(time_s);
    totals.page_table_bytes = tables;
    if (!totals.swap_bytes) totals.swap_bytes = swap;
    if (!totals.hugetlb_bytes) totals.hugetlb_bytes = hugetlb;
  }

  bool read_json(const RawFrame& frame) {
    const json object = json::parse(as_text(frame.payload), nullptr, false);
    if (!object.is_object()) return false;
    using enum trace::FrameKind;
    switch (frame.kind) {
      case process:
        read_process(object, frame.time_ns);
        break;
      case ended:
        read_ended(object);
        break;
      case note:
        if (const std::string said = json_text(object, "text"); !said.empty()) out_.account.notes.push_back(said);
        break;
      case counters:
        read_counters(object);
        break;
      case file_sizes:
        read_file_sizes(object, seconds_since(origin_ns_, frame.time_ns));
        break;
      case unmapped:
        if (auto unmapped = unmapped_of(object, seconds_since(origin_ns_, frame.time_ns)))
          out_.account.unmapped.push_back(std::move(*unmapped));
        break;
      default:
        read_cgroup_frame(object, seconds_since(origin_ns_, frame.time_ns), out_.cgroup);
        break;
    }
    return true;
  }

  void read_file_sizes(const json& object, double time_s) {
    const auto list = object.find("files");
    if (list == object.end() || !list->is_array()) return;
    FileSizes sizes{.time_s = time_s, .files = {}};
    for (const json& file : *list) {
      if (!file.is_object()) continue;
      const std::string path = json_text(file, "path");
      const auto size = json_integer(file, "size_bytes"), mapped = json_integer(file, "mapped_bytes");
      if (path.starts_with('/') && size && mapped && *size >= 0 && *mapped >= 0)
        sizes.files[file_name(path, Backing::file)] = {*size, *mapped, json_true(file, "writable")};
    }
    out_.account.file_sizes.push_back(std::move(sizes));
  }

  void read_process(const json& object, std::uint64_t time_ns) {
    ProcessAccount& account = out_.account;
    if (const auto parent = json_integer(object, "parent");
        parent && !account.parent && *parent > 0 && *parent < INT32_MAX)
      account.parent = static_cast<int>(*parent);
    if (const auto born = json_integer(object, "born_ns"); born && !out_.born_ns)
      out_.born_ns = static_cast<std::uint64_t>(*born);
    if (const std::string exe = json_text(object, "exe"); !exe.empty()) account.exe = exe;
    if (object.contains("exe")) account.environment.clear();  // of the image before
    if (const auto environment = object.find("environment"); environment != object.end() && environment->is_object())
      for (const auto& [name, value] : environment->items())
        if (value.is_string()) account.environment[name] = value.get<std::string>();
    if (const auto folders = object.find("package_folders"); folders != object.end() && folders->is_array())
      for (const json& folder : *folders)
        if (folder.is_string()) account.package_folders.push_back(folder.get<std::string>() + "/");
    const auto command = object.find("command");
    if (command == object.end() || !command->is_array() || command->empty()) return;
    account.command.clear();
    for (const json& word : *command)
      if (word.is_string()) account.command.push_back(word.get<std::string>());
    out_.program = {.time_ns = time_ns,
                    .command = account.command,
                    .exe = account.exe,
                    .environment = account.environment,
                    .preload = json_text(object, "preload"),
                    .unfit = json_text(object, "unfit")};
  }

  void read_counters(const json& object) {
    for (const auto& [name, value] : object.items()) {
      if (!value.is_number_integer()) continue;
      if (name == "dropped_records")
        out_.dropped_records = std::max(out_.dropped_records, value.get<std::int64_t>());
      else if (name == "descriptors_last_ns" || name == "descriptors_peak_ns")
        out_.account.counters[name.substr(0, name.size() - 2) + "ms"] =
            std::llround(seconds_since(origin_ns_, static_cast<std::uint64_t>(value.get<std::int64_t>())) * 1000);
      else
        out_.account.counters[name] = value.get<std::int64_t>();
    }
  }

  void read_ended(const json& object) {
    if (const auto time_ns = json_integer(object, "ended_ns")) out_.ended_ns = static_cast<std::uint64_t>(*time_ns);
    if (const auto status = json_integer(object, "status"); status && *status >= 0 && *status <= UINT8_MAX)
      out_.exit_status = static_cast<int>(*status);
    out_.account.end_signal = json_text(object, "signal");
    constexpr std::int64_t kKilo = 1024, kMostKilos = std::int64_t{1} << 50;
    if (const auto kilos = json_integer(object, "high_water_kilos"); kilos && *kilos > 0 && *kilos < kMostKilos)
      out_.account.high_water_bytes = std::max(out_.account.high_water_bytes, *kilos * kKilo);
    if (const auto kib = json_integer(object, "max_rss_kib"); kib && *kib > 0 && *kib < kMostKilos)
      out_.max_rss_bytes = *kib * kKilo;
    for (OomKill& kill : oom_kills(oom_log(object), origin_ns_)) out_.oom_kills.push_back(std::move(kill));
  }

  std::uint64_t origin_ns_;
  std::int64_t page_bytes_ = 4096;
  PageFrames out_;
};

}  // namespace

PageFrames read_page_frames(const std::vector<RawFrame>& frames, std::uint64_t origin_ns) {
  Reader reader(origin_ns);
  for (const RawFrame& frame : frames) reader.read(frame);
  return reader.finish();
}

}  // namespace whyrss
