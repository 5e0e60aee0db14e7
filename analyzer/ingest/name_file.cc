#include "ingest/name_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "recording/frame_file.h"
#include "recording/frame_order.h"
#include "support/clock.h"
#include "support/file.h"
#include "support/text.h"

namespace whyrss {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kSessionDigits = 32;
constexpr std::uintmax_t kLargestFileBytes = 256UL << 20;

std::optional<trace::SessionId> parse_session(std::string_view text) {
  if (text.size() != kSessionDigits) return std::nullopt;
  const auto high = parse_number<std::uint64_t>(text.substr(0, kSessionDigits / 2), 16);
  const auto low = parse_number<std::uint64_t>(text.substr(kSessionDigits / 2), 16);
  if (!high || !low) return std::nullopt;
  return trace::SessionId{.high = *high, .low = *low};
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string from_hex(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i + 2 <= text.size(); i += 2)
    bytes += static_cast<char>(parse_number<std::uint8_t>(text.substr(i, 2), 16).value_or(0));
  return bytes;
}

std::string cache_directory() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return std::string(cache) + "/whyrss";
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    return std::string(home) + "/.cache/whyrss";
  return "";
}

std::string path_in_recording(const std::string& recording_dir) { return recording_dir + "/symbols.zst"; }
std::string path_in_cache(const std::string& directory, const std::string& session) {
  return fmt::format("{}/{}.symbols.zst", directory, session);
}

Json render_module(const Module& module, const ModuleNames& names) {
  Json entries = Json::array();
  for (const auto& [address, lines] : names.lines) {
    Json entry = Json::array({address});
    for (const CodeLine& line : lines) entry.push_back({line.function, line.file, line.line});
    entries.push_back(std::move(entry));
  }
  return {{"path", module.path},
          {"build_id", hex(module.build_id)},
          {"debug_info", names.has_debug_info},
          {"cut_at_cpu_s", names.cut_at_cpu_s},
          {"names", std::move(entries)}};
}

// Throws what nlohmann throws for a value of another type.
void add_module(const Json& json, NameTable& table) {
  const Module module{json.at("path").get<std::string>(), from_hex(json.at("build_id").get<std::string>())};
  ModuleNames names;
  names.has_debug_info = json.at("debug_info").get<bool>();
  names.cut_at_cpu_s = json.at("cut_at_cpu_s").get<int>();
  for (const Json& entry : json.at("names")) {
    std::vector<CodeLine>& lines = names.lines[entry.at(0).get<std::uint64_t>()];
    lines.clear();
    for (std::size_t i = 1; i < entry.size(); ++i)
      lines.push_back({entry[i].at(0).get<std::string>(), entry[i].at(1).get<std::string>(),
                       std::max(0, entry[i].at(2).get<int>())});
  }
  table[module] = std::move(names);
}

// `name`: for what is wrong with it.
NameTable read_one(const std::string& path, const std::string& name, const std::string& session,
                   std::vector<std::string>& damage) {
  NameTable table;
  std::error_code error;
  if (!fs::exists(path, error)) return table;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kLargestFileBytes || error) {
    damage.push_back(name + ": is no file, or too large for one of names, and was left out");
    return table;
  }
  const auto text = read_file(path);
  if (!text) {
    damage.push_back(text.error());
    return table;
  }
  auto file = parse_frame_file(std::as_bytes(std::span(*text)), name);
  if (!file) {
    damage.push_back(file.error());
    return table;
  }
  const FileIdentity& is = file->identity;
  if (is.kind != trace::FileKind::names || hex32(is.session.high, is.session.low) != session) {
    damage.push_back(name + ": is of another recording, and was left out");
    return table;
  }
  const auto found = check_frames(*file, is.frame_count > 0 ? std::optional(is.frame_count) : std::nullopt);
  if (!found.empty()) damage.push_back(fmt::format("{}: {}", name, join(found, "; ")));
  for (const RawFrame& frame : file->frames) {
    if (frame.kind != trace::FrameKind::names) continue;
    const auto* begin = reinterpret_cast<const char*>(frame.payload.data());
    const Json json = Json::parse(begin, begin + frame.payload.size(), nullptr, false);
    try {
      add_module(json, table);
    } catch (const Json::exception&) {
      continue;  // of another version, or made by hand
    }
  }
  return table;
}

Status write_one(const std::string& path, const trace::SessionId& session, const NameTable& names) {
  const std::string fresh = fmt::format("{}.{}", path, getpid());
  unlink(fresh.c_str());
  Status status = Done{};
  {
    auto writer =
        FrameWriter::create(fresh, {.kind = trace::FileKind::names, .session = session, .frame_count = names.size()});
    if (!writer) return Error{writer.error()};
    for (const auto& [module, known] : names) {
      const std::string text = render_module(module, known).dump(-1, ' ', false, Json::error_handler_t::replace);
      status = writer->append(trace::FrameKind::names, static_cast<std::uint64_t>(monotonic_ns()),
                              std::as_bytes(std::span(text)));
      if (!status) break;
    }
  }
  if (status && rename(fresh.c_str(), path.c_str()) == 0) return status;
  if (status) status = system_error("cannot rename to", path);
  unlink(fresh.c_str());
  return status;
}

}  // namespace

NameTable read_name_file(const std::string& recording_dir, const std::string& session,
                         std::vector<std::string>* damage) {
  std::vector<std::string> ignored;
  std::vector<std::string>& found = damage == nullptr ? ignored : *damage;
  NameTable names = read_one(path_in_recording(recording_dir), "symbols.zst", session, found);
  const std::string cache = cache_directory();
  if (access(recording_dir.c_str(), W_OK) == 0 || cache.empty() || !parse_session(session)) return names;
  const std::string cache_path = path_in_cache(cache, session);
  NameTable cached = read_one(cache_path, cache_path, session, found);
  cached.merge(names);  // the cache is the later one
  return cached;
}

Status write_name_file(const std::string& recording_dir, const std::string& session, const NameTable& names) {
  const auto id = parse_session(session);
  if (!id) return Error{"the recording has no session id"};
  Status in_place = write_one(path_in_recording(recording_dir), *id, names);
  const std::string cache = cache_directory();
  if (in_place || cache.empty()) return in_place;
  std::error_code error;
  fs::create_directories(cache, error);
  return write_one(path_in_cache(cache, session), *id, names);
}

}  // namespace whyrss
