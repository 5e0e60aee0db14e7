#include "recording/manifest.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <climits>
#include <nlohmann/json.hpp>

#include "support/file.h"

namespace whyrss {
namespace {

constexpr const char* kSchema = "whyrss.recording/1";
constexpr const char* kChecksum = "checksum";

// Keeps `value` when the key is absent or of another type.
template <typename T>
void take(const nlohmann::json& object, const char* key, T& value) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  try {
    value = found->template get<T>();
  } catch (const nlohmann::json::exception&) {
    return;
  }
}

nlohmann::json object_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : nlohmann::json::object();
}

// The last key: of the text before it.
std::string with_checksum(std::string text) {
  text.resize(text.size() - std::string_view("\n}").size());
  text += ",\n ";
  const std::uint64_t checksum = XXH3_64bits(text.data(), text.size());
  return text + fmt::format("\"{}\": \"{:016x}\"\n}}\n", kChecksum, checksum);
}

// The text may end with more empty lines (recording/manifest_file).
bool has_right_checksum(std::string_view text) {
  while (text.ends_with("\n\n")) text.remove_suffix(1);
  const std::size_t at = text.rfind(fmt::format("\"{}\"", kChecksum));
  return at != std::string_view::npos &&
         text.substr(at) == fmt::format("\"{}\": \"{:016x}\"\n}}\n", kChecksum, XXH3_64bits(text.data(), at));
}

nlohmann::ordered_json count_json(std::optional<std::uint64_t> count) {
  return count ? nlohmann::ordered_json(*count) : nlohmann::ordered_json();
}

std::optional<std::uint64_t> parse_count(const nlohmann::json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found != entry.end() && found->is_null()) return std::nullopt;
  std::uint64_t count = 0;
  take(entry, key, count);
  return count;
}

nlohmann::ordered_json processes_json(const std::vector<ClosedProcess>& processes) {
  auto list = nlohmann::ordered_json::array();
  for (const ClosedProcess& process : processes)
    list.push_back({{"directory", process.directory},
                    {"events", count_json(process.events_frames)},
                    {"pages", count_json(process.pages_frames)}});
  return list;
}

std::optional<std::vector<ClosedProcess>> parse_processes(const nlohmann::json& json) {
  const auto list = json.find("processes");
  if (list == json.end() || !list->is_array()) return std::nullopt;
  std::vector<ClosedProcess> processes;
  for (const nlohmann::json& entry : *list) {
    if (!entry.is_object()) return std::nullopt;
    ClosedProcess& process = processes.emplace_back();
    take(entry, "directory", process.directory);
    process.events_frames = parse_count(entry, "events");
    process.pages_frames = parse_count(entry, "pages");
  }
  return processes;
}

nlohmann::ordered_json fault_json(const WriteFault& fault) {
  return {{"file", fault.file},
          {"error", fault.error},
          {"from_ns", fault.from_ns},
          {"until_ns", fault.until_ns},
          {"other_files", fault.other_files},
          {"events", fault.events},
          {"walks", fault.walks},
          {"frames", fault.frames}};
}

WriteFault parse_fault(const nlohmann::json& json) {
  WriteFault fault;
  take(json, "file", fault.file);
  take(json, "error", fault.error);
  take(json, "from_ns", fault.from_ns);
  take(json, "until_ns", fault.until_ns);
  take(json, "other_files", fault.other_files);
  take(json, "events", fault.events);
  take(json, "walks", fault.walks);
  take(json, "frames", fault.frames);
  return fault;
}

}  // namespace

std::string render_manifest(const Manifest& manifest) {
  nlohmann::ordered_json json;
  json["schema"] = kSchema;
  json["version"] = manifest.version;
  json["format"] = manifest.format;
  json["state"] = manifest.state;
  json["session"] = manifest.session;
  json["host"] = manifest.host;
  json["boot_id"] = manifest.boot_id;
  json["command"] = manifest.command;
  json["target_pid"] = manifest.target_pid;
  json["started"] = manifest.started;
  json["started_ns"] = manifest.started_ns;
  json["ended_ns"] = manifest.ended_ns;
  json["mode"] = manifest.mode;
  json["options"] = manifest.options;
  json["capabilities"] = manifest.capabilities;
  json["pool_path"] = manifest.pool_path;
  json["page_bytes"] = manifest.page_bytes;
  json["memory_total_bytes"] = manifest.memory_total_bytes;
  json["exit"]["code"] = manifest.exit_code ? nlohmann::ordered_json(*manifest.exit_code) : nlohmann::ordered_json();
  json["exit"]["signal"] =
      manifest.exit_signal ? nlohmann::ordered_json(*manifest.exit_signal) : nlohmann::ordered_json();
  json["lost"] = {{"dropped_records", manifest.dropped_records},
                  {"dropped_bytes", manifest.dropped_bytes},
                  {"refused_slots", manifest.refused_slots}};
  for (const WriteFault& fault : manifest.write_faults) json["write_faults"].push_back(fault_json(fault));
  if (!manifest.notes.empty()) json["notes"] = manifest.notes;
  if (!manifest.metrics_url.empty()) json["metrics"]["url"] = manifest.metrics_url;
  if (manifest.group_limit_bytes) {
    json["memory_group"]["limit_bytes"] = *manifest.group_limit_bytes;
    json["memory_group"]["oom_kills"] = manifest.group_kills.value_or(0);
  }
  if (manifest.left_files)
    json["left_files"] = {{"count", manifest.left_files->count},
                          {"bytes", manifest.left_files->bytes},
                          {"largest", manifest.left_files->largest}};
  json["collector"] = {{"pid", manifest.collector_pid},
                       {"cpu_s", manifest.collector_cpu_s},
                       {"share", manifest.collector_share},
                       {"overhead_percent", manifest.overhead_percent}};
  if (manifest.processes) json["processes"] = processes_json(*manifest.processes);
  // A command line is bytes, not UTF-8: what JSON cannot hold is replaced.
  return with_checksum(json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

Result<Manifest> parse_manifest(const std::string& text, const std::string& name) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return Error{fmt::format("{} is not JSON: it is damaged or no whyrss manifest", name)};
  std::string schema;
  take(json, "schema", schema);
  if (schema != kSchema) return Error{fmt::format("{} is of schema '{}'; this whyrss reads {}", name, schema, kSchema)};
  Manifest manifest;
  manifest.format = 0;
  take(json, "version", manifest.version);
  take(json, "format", manifest.format);
  manifest.processes = parse_processes(json);
  manifest.is_sound = has_right_checksum(text);
  take(json, "state", manifest.state);
  take(json, "session", manifest.session);
  take(json, "host", manifest.host);
  take(json, "boot_id", manifest.boot_id);
  take(json, "command", manifest.command);
  take(json, "target_pid", manifest.target_pid);
  take(json, "started", manifest.started);
  take(json, "started_ns", manifest.started_ns);
  take(json, "ended_ns", manifest.ended_ns);
  take(json, "mode", manifest.mode);
  take(json, "options", manifest.options);
  take(json, "capabilities", manifest.capabilities);
  take(json, "pool_path", manifest.pool_path);
  take(json, "page_bytes", manifest.page_bytes);
  take(json, "memory_total_bytes", manifest.memory_total_bytes);
  const auto exit = object_at(json, "exit");
  if (exit.contains("code") && exit["code"].is_number_integer()) manifest.exit_code = exit["code"].get<int>();
  if (exit.contains("signal") && exit["signal"].is_string()) manifest.exit_signal = exit["signal"].get<std::string>();
  const auto lost = object_at(json, "lost");
  take(lost, "dropped_records", manifest.dropped_records);
  take(lost, "dropped_bytes", manifest.dropped_bytes);
  take(lost, "refused_slots", manifest.refused_slots);
  if (const auto faults = json.find("write_faults"); faults != json.end() && faults->is_array())
    for (const auto& fault : *faults)
      if (fault.is_object()) manifest.write_faults.push_back(parse_fault(fault));
  take(json, "notes", manifest.notes);
  take(object_at(json, "metrics"), "url", manifest.metrics_url);
  const auto group = object_at(json, "memory_group");
  if (group.contains("limit_bytes") && group["limit_bytes"].is_number_integer())
    manifest.group_limit_bytes = group["limit_bytes"].get<std::int64_t>();
  if (group.contains("oom_kills") && group["oom_kills"].is_number_integer())
    manifest.group_kills = group["oom_kills"].get<std::int64_t>();
  if (const auto left = object_at(json, "left_files"); !left.empty()) {
    LeftFiles& files = manifest.left_files.emplace();
    take(left, "count", files.count);
    take(left, "bytes", files.bytes);
    take(left, "largest", files.largest);
  }
  const auto collector = object_at(json, "collector");
  take(collector, "pid", manifest.collector_pid);
  take(collector, "cpu_s", manifest.collector_cpu_s);
  take(collector, "share", manifest.collector_share);
  take(collector, "overhead_percent", manifest.overhead_percent);
  return manifest;
}

bool is_of_this_boot(const Manifest& manifest) {
  const auto boot_id = read_file("/proc/sys/kernel/random/boot_id");
  return boot_id && boot_id->substr(0, boot_id->find('\n')) == manifest.boot_id;
}

bool is_of_this_host(const Manifest& manifest) {
  std::array<char, HOST_NAME_MAX + 1> host{};
  return gethostname(host.data(), host.size() - 1) == 0 && manifest.host == host.data() && is_of_this_boot(manifest);
}

}  // namespace whyrss
