#include "decode/name_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

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

constexpr const char* kInRecording = "symbols.zst";
std::string name_in_cache(const std::string& session) { return session + ".symbols.zst"; }

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
          {"allocator", names.allocator},
          {"names", std::move(entries)}};
}

// Throws what nlohmann throws for a value of another type.
void add_module(const Json& json, NameTable& table) {
  const Module module{json.at("path").get<std::string>(), from_hex(json.at("build_id").get<std::string>())};
  ModuleNames names;
  names.has_debug_info = json.at("debug_info").get<bool>();
  names.cut_at_cpu_s = json.at("cut_at_cpu_s").get<int>();
  names.allocator = json.value("allocator", "");  // not in older ones
  for (const Json& entry : json.at("names")) {
    std::vector<CodeLine>& lines = names.lines[entry.at(0).get<std::uint64_t>()];
    lines.clear();
    for (std::size_t i = 1; i < entry.size(); ++i)
      lines.push_back({entry[i].at(0).get<std::string>(), entry[i].at(1).get<std::string>(),
                       std::max(0, entry[i].at(2).get<int>())});
  }
  table[module] = std::move(names);
}

// What is wrong with it is added to `damage`.
NameTable read_one(const Folder& folder, const std::string& name, const std::string& session,
                   std::vector<std::string>& damage) {
  NameTable table;
  const EntryStatus entry = folder.status_of(name);
  if (entry.kind == EntryKind::missing) return table;
  if (entry.kind != EntryKind::file || entry.size_bytes > kLargestFileBytes) {
    damage.push_back(name + ": is no file, or too large for one of names, and was left out");
    return table;
  }
  auto file = read_frame_file(folder, name);
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

Status write_names(FrameWriter& writer, const NameTable& names) {
  for (const auto& [module, known] : names) {
    const std::string text = render_module(module, known).dump(-1, ' ', false, Json::error_handler_t::replace);
    if (Status status = writer.append(trace::FrameKind::names, static_cast<std::uint64_t>(monotonic_ns()),
                                      std::as_bytes(std::span(text)));
        !status)
      return status;
  }
  return Done{};
}

Status write_one(const Folder& folder, const std::string& name, const trace::SessionId& session,
                 const NameTable& names) {
  const std::string fresh = fmt::format("{}.{}", name, getpid());
  folder.remove(fresh);
  auto file = folder.create_file(fresh);
  if (!file) return Error{file.error()};
  auto writer = FrameWriter::start(std::move(*file), folder.path_of(fresh),
                                   {.kind = trace::FileKind::names, .session = session, .frame_count = names.size()});
  Status status = writer ? write_names(*writer, names) : Status(Error{writer.error()});
  if (status) status = folder.rename(fresh, name);
  if (!status) folder.remove(fresh);
  return status;
}

Result<Folder> open_cache() {
  const std::string cache = cache_directory();
  return cache.empty() ? Result<Folder>(Error{"no directory for a cache"}) : Folder::open(cache);
}

// Another user's recording is left as it is.
bool may_write(const Folder& recording) {
  return recording.status().owner == geteuid() && faccessat(recording.fd(), ".", W_OK, AT_EACCESS) == 0;
}

}  // namespace

NameTable read_name_file(const Folder& recording, const std::string& session, std::vector<std::string>* damage) {
  std::vector<std::string> ignored;
  std::vector<std::string>& found = damage == nullptr ? ignored : *damage;
  NameTable names = read_one(recording, kInRecording, session, found);
  if (may_write(recording) || !parse_session(session)) return names;
  const auto cache = open_cache();
  if (!cache) return names;
  NameTable cached = read_one(*cache, name_in_cache(session), session, found);
  cached.merge(names);  // the cache is the later one
  return cached;
}

Status write_name_file(const Folder& recording, const std::string& session, const NameTable& names) {
  const auto id = parse_session(session);
  if (!id) return Error{"the recording has no session id"};
  Status in_place = Error{"it belongs to another user"};
  if (may_write(recording)) in_place = write_one(recording, kInRecording, *id, names);
  if (in_place) return in_place;
  std::error_code error;
  fs::create_directories(cache_directory(), error);
  const auto cache = open_cache();
  return cache ? write_one(*cache, name_in_cache(session), *id, names) : in_place;
}

}  // namespace whyrss
