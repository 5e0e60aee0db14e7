#include "decode/code_names.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "support/file.h"

namespace whyrss {
namespace {

constexpr const char* kFile = "code_names.json";
constexpr std::uint64_t kLargestNamesBytes = 16UL << 20;  // 100,000 cells

using CodeNames = std::unordered_map<std::string, std::string>;

// "": what is wrong with it.
std::string parse(const std::string& text, CodeNames& names) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return "is no JSON object";
  for (const auto& [path, name] : json.items())
    if (name.is_string() && !name.get_ref<const std::string&>().empty()) names[path] = name.get<std::string>();
  return "";
}

std::string read(const Folder& recording, CodeNames& names) {
  const EntryStatus entry = recording.status_of(kFile);
  if (entry.kind == EntryKind::missing) return "";
  if (entry.kind != EntryKind::file || entry.size_bytes > kLargestNamesBytes) return "is no file, or too large";
  const auto file = recording.open_file(kFile);
  const auto text = file ? read_all(file->get(), recording.path_of(kFile)) : Result<std::string>(Error{file.error()});
  return text ? parse(*text, names) : text.error();
}

}  // namespace

void apply_code_names(const Folder& recording, StackTable& stacks, std::vector<std::string>& notes) {
  CodeNames names;
  if (const std::string damage = read(recording, names); !damage.empty())
    notes.push_back(fmt::format("{}: {}: files of code have the names that Python has for them", kFile, damage));
  if (names.empty()) return;
  std::map<FrameId, std::vector<CodeLine>> renamed;
  for (std::size_t i = 1; i < stacks.frame_count(); ++i) {
    const FrameId id{static_cast<std::uint32_t>(i)};
    const Frame& frame = stacks[id];
    const auto found = frame.kind == FrameKind::python ? names.find(frame.file) : names.end();
    if (found != names.end()) renamed[id] = {{frame.function, found->second, frame.line}};
  }
  stacks.set_names(renamed);
}

}  // namespace whyrss
