// Which Python this is, and whether it is laid out as our tables say.
#include <array>
#include <string_view>

#include "shim/stacks/python_interpreter.h"
#include "shim/stacks/python_library.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

// 3.13 and later describe themselves in the first bytes of _PyRuntime (_Py_DebugOffsets): "xdebugpy", version,
// whether free-threaded, then offsets.
constexpr std::uint8_t kSelfDescribedSince = 13;
static_assert(kPythonLayouts.front().minor == trace::kFirstPythonMinor &&
              kPythonLayouts.back().minor == trace::kLastPythonMinor);
constexpr std::size_t kRuntimeFreeThreaded = 16;

// PY_VERSION_HEX of "3.8.18" or "3.13.0rc1".
std::uint32_t version_hex_of(std::string_view text) noexcept {
  const auto take = [&text] { return static_cast<std::uint32_t>(take_number(text)); };
  const auto skip = [&text](std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
  };
  std::uint32_t hex = take() << 24;
  if (skip(".")) hex |= take() << 16;
  if (skip(".")) hex |= take() << 8;
  if (skip("a")) return hex | 0xa0 | take();
  if (skip("b")) return hex | 0xb0 | take();
  if (skip("rc")) return hex | 0xc0 | take();
  return hex | 0xf0;
}

// "3.8.18 (default, ...) [GCC ...]": up to the first blank.
void set_version_text(std::string_view text) noexcept {
  text = text.substr(0, text.find(' '));
  text = text.substr(0, sizeof(g_python.version));
  __builtin_memcpy(g_python.version, text.data(), text.size());
  g_python.record.version_bytes = static_cast<std::uint32_t>(text.size());
}

void set_version(std::uint32_t hex) noexcept {
  ShortText text;
  text.add(std::uint64_t{hex >> 24})
      .add(".")
      .add(std::uint64_t{(hex >> 16) & 0xff})
      .add(".")
      .add(std::uint64_t{(hex >> 8) & 0xff});
  const std::uint32_t level = (hex >> 4) & 0xf;
  if (level != 0xf) text.add(level == 0xa ? "a" : level == 0xb ? "b" : "rc").add(std::uint64_t{hex & 0xf});
  set_version_text(text.view());
  g_python.record.version_hex = hex;
}

// The offset of a member that the type itself declares, 0 when it declares none of this name.
std::size_t declared_offset(const std::byte* type, const PythonLayout& layout, std::string_view name) noexcept {
  const auto* member = load_at<const std::byte*>(type, layout.type_members);
  for (; member != nullptr && load_at<const char*>(member, 0) != nullptr; member += kMemberBytes) {
    if (load_at<const char*>(member, 0) == name)
      return static_cast<std::size_t>(load_at<std::int64_t>(member, kMemberOffset));
  }
  return 0;
}

bool has_expected_sizes(const Library& library, const PythonLayout& layout) noexcept {
  constexpr std::array<const char*, 4> kTypes{"PyCode_Type", "PyGen_Type", "PyFrame_Type", "PyUnicode_Type"};
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    const std::byte* type = library.address(kTypes[i]);
    if (type == nullptr || load_at<std::int64_t>(type, layout.type_basic_size) != layout.basic_sizes[i]) return false;
  }
  return true;
}

bool has_expected_members(const std::byte* code_type, const PythonLayout& layout) noexcept {
  const char* line_table = layout.minor < 10 ? "co_lnotab" : "co_linetable";
  return declared_offset(code_type, layout, "co_filename") == layout.code_file &&
         declared_offset(code_type, layout, "co_name") == layout.code_name &&
         declared_offset(code_type, layout, "co_firstlineno") == layout.code_first_line &&
         declared_offset(code_type, layout, "co_flags") == layout.code_flags &&
         declared_offset(code_type, layout, line_table) == layout.code_line_table;
}

bool describes_itself(const std::byte* runtime) noexcept {
  return __builtin_memcmp(runtime, "xdebugpy", 8) == 0 &&
         load_at<std::uint64_t>(runtime, 8) == g_python.record.version_hex;
}

// Every field that we read and that it tells.
bool has_expected_self_description(const Library& library, const PythonLayout& layout) noexcept {
  if (layout.minor < kSelfDescribedSince) return true;
  const std::byte* runtime = library.address("_PyRuntime");
  if (!describes_itself(runtime)) return false;
  for (const SelfDescribed& field : layout.self_description)
    if (field.at != 0 && load_at<std::uint64_t>(runtime, field.at) != field.value) return false;
  return true;
}

}  // namespace

bool find_python_version(const Library& library) noexcept {
  if (const std::byte* version = library.address("Py_Version"); version != nullptr) {  // since 3.11
    set_version(static_cast<std::uint32_t>(load_at<unsigned long>(version, 0)));
    return true;
  }
  const char* (*get_version)() = nullptr;
  if (!library.find("Py_GetVersion", get_version)) return false;
  const std::string_view text = get_version();  // formats into a static buffer
  set_version_text(text);
  g_python.record.version_hex = version_hex_of(text);
  return true;
}

std::size_t find_python_row(const Library& library) noexcept {
  const std::uint32_t version = g_python.record.version_hex >> 16;
  const std::byte* runtime = library.address("_PyRuntime");
  const bool free_threaded = version >= (3U << 8 | kSelfDescribedSince) && describes_itself(runtime) &&
                             load_at<std::uint64_t>(runtime, kRuntimeFreeThreaded) != 0;
  std::size_t row = 0;
  while (row < kPythonLayouts.size() &&
         (version != (3U << 8 | kPythonLayouts[row].minor) || free_threaded != kPythonLayouts[row].free_threaded))
    ++row;
  return row;
}

bool is_laid_out_as(const Library& library, const PythonLayout& layout) noexcept {
  return has_expected_sizes(library, layout) && has_expected_members(library.address("PyCode_Type"), layout) &&
         has_expected_self_description(library, layout);
}

}  // namespace whyrss::shim
