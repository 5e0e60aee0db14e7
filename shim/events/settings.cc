#include "shim/events/settings.h"

#include <algorithm>
#include <array>

#include "shim/sys/loaded_images.h"

namespace whyrss::shim {
namespace {

enum class Value { mode, size, count, touch, on_off, auto_on_off, unwinder, at_end, anything };

// Fits into 32 bits; no useful setting samples more rarely.
constexpr std::uint64_t kMaxPeriodFaults = 1'000'000'000;
constexpr std::uint64_t kMaxSampleBytes = std::uint64_t{1} << 50;

struct Option {
  std::string_view key;
  Value value;
};

// The long options of `whyrss record`, with _ for -.
constexpr std::array kOptions{
    Option{"mode", Value::mode},
    Option{"sample_bytes", Value::size},
    Option{"touch", Value::touch},
    Option{"seed", Value::count},
    Option{"liveness", Value::on_off},
    Option{"unwinder", Value::unwinder},
    Option{"preload", Value::anything},
    Option{"memory_max", Value::size},
    Option{"exe", Value::anything},
    Option{"at_end", Value::at_end},
    Option{"write_tracking", Value::on_off},
    Option{"python_objects", Value::on_off},
    Option{"allocator_stats", Value::auto_on_off},
    Option{"overhead", Value::anything},  // this and the next are the collector's
    Option{"metrics", Value::anything},
    Option{"metrics_file", Value::anything},
};

bool is_count(std::string_view text) noexcept {
  if (text.empty() || text.size() > 18) return false;
  const std::uint64_t number = take_number(text);
  return text.empty() && number > 0;
}

struct Unit {
  std::string_view name;
  unsigned shift;
};
constexpr std::array kUnits{
    Unit{"KiB", 10}, Unit{"MiB", 20}, Unit{"GiB", 30}, Unit{"K", 10}, Unit{"M", 20}, Unit{"G", 30}, Unit{"B", 0},
};

// "64KiB" -> 65536; 0 when it is not a size.
std::uint64_t size_of(std::string_view text) noexcept {
  unsigned shift = 0;
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    text.remove_suffix(unit.name.size());
    shift = unit.shift;
    break;
  }
  return is_count(text) ? std::min(take_number(text), UINT64_MAX >> shift) << shift : 0;
}

bool is_valid(Value kind, std::string_view text) noexcept {
  switch (kind) {
    case Value::mode:
      return text == "sampled" || text == "exact";
    case Value::size:
      return size_of(text) != 0;
    case Value::count:
      return is_count(text);
    case Value::touch:
      return text == "auto" || text == "off" || is_count(text);
    case Value::on_off:
      return text == "on" || text == "off";
    case Value::auto_on_off:
      return text == "auto" || text == "on" || text == "off";
    case Value::unwinder:
      return text == "auto" || text == "libunwind";
    case Value::at_end:
      return text == "walk" || text == "trim";
    case Value::anything:
      return !text.empty();
  }
  return false;
}

void set_touch(std::string_view value, Settings& settings) noexcept {
  settings.touch_off = value == "off";
  settings.touch_period_faults = value == "off" || value == "auto"
                                     ? 0
                                     : static_cast<std::uint32_t>(std::min(take_number(value), kMaxPeriodFaults));
}

bool apply(std::string_view item, Settings& settings, Text& mistake) noexcept {
  const std::size_t equals = item.find('=');
  const std::string_view key(item.data(), equals == std::string_view::npos ? item.size() : equals);
  std::string_view value(item.data() + key.size() + (equals == std::string_view::npos ? 0 : 1),
                         item.size() - key.size() - (equals == std::string_view::npos ? 0 : 1));
  for (const Option& option : kOptions) {
    if (option.key != key) continue;
    if (!is_valid(option.value, value)) {
      mistake.add("bad value in WHYRSS_OPTS: ").add(item).add(" (tracing is off)");
      return false;
    }
    if (key == "exe") {
      settings.exe_pattern = value.data();
      settings.exe_pattern_bytes = value.size();
    }
    if (key == "mode") settings.exact = value == "exact";
    if (key == "sample_bytes") settings.sample_bytes = std::min(size_of(value), kMaxSampleBytes);
    if (key == "seed") settings.seed = take_number(value);
    if (key == "python_objects") settings.sample_objects = value == "on";
    if (key == "liveness") settings.liveness_off = value == "off";
    if (key == "allocator_stats")
      settings.allocator_stats = value == "on"    ? AllocatorStats::on
                                 : value == "off" ? AllocatorStats::off
                                                  : AllocatorStats::usual;
    if (key == "at_end") settings.at_end = value == "trim" ? AtEnd::trim : AtEnd::walk;
    if (key == "touch") set_touch(value, settings);
    if (key == "unwinder") settings.use_libunwind = value == "libunwind";
    return true;
  }
  mistake.add("unknown key in WHYRSS_OPTS: ").add(key).add(" (tracing is off)");
  return false;
}

bool hex_digit(char letter, std::uint64_t& digit) noexcept {
  if (letter >= '0' && letter <= '9')
    digit = static_cast<std::uint64_t>(letter - '0');
  else if (letter >= 'a' && letter <= 'f')
    digit = static_cast<std::uint64_t>(letter - 'a') + 10;
  else
    return false;
  return true;
}

}  // namespace

const char* const* initial_environment() noexcept {
  void* const* stack_end = nullptr;  // where the loader found the program's argc
  if (!set_found(stack_end, find_in_libc("__libc_stack_end"))) return nullptr;
  const auto* count = static_cast<const std::uint64_t*>(*stack_end);
  const auto* arguments = reinterpret_cast<const char* const*>(count + 1);
  return arguments[*count] == nullptr ? arguments + *count + 1 : nullptr;
}

const char* environment_value(const char* const* environment, std::string_view name) noexcept {
  if (environment == nullptr) return nullptr;
  for (; *environment != nullptr; ++environment) {
    const char* entry = *environment;
    if (std::strncmp(entry, name.data(), name.size()) == 0 && entry[name.size()] == '=') return entry + name.size() + 1;
  }
  return nullptr;
}

bool parse_session(const char* value, trace::SessionId& session, const char*& pool_path) noexcept {
  std::uint64_t parts[2] = {};
  for (std::size_t index = 0; index < 32; ++index) {
    std::uint64_t digit = 0;
    if (!hex_digit(value[index], digit)) return false;
    parts[index / 16] = parts[index / 16] << 4 | digit;
  }
  if (value[32] != ':' || value[33] != '/') return false;
  session = {.high = parts[0], .low = parts[1]};
  pool_path = value + 33;
  return true;
}

bool read_settings(const char* const* environment, Settings& settings, Text& mistake) noexcept {
  settings.output = environment_value(environment, "WHYRSS_OUTPUT");
  if (settings.output != nullptr && *settings.output == '\0') settings.output = nullptr;
  const char* session = environment_value(environment, "WHYRSS_SESSION");
  if (session != nullptr && session == kNoSession) {
    settings.output = nullptr;
    return true;
  }
  if (session != nullptr && !parse_session(session, settings.session, settings.pool_path)) {
    mistake.add("malformed WHYRSS_SESSION: ").add(session).add(" (tracing is off)");
    return false;
  }
  const char* options = environment_value(environment, "WHYRSS_OPTS");
  if (options == nullptr) return true;
  std::string_view rest(options);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view item(rest.data(), comma == std::string_view::npos ? rest.size() : comma);
    if (!item.empty() && !apply(item, settings, mistake)) return false;
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  return true;
}

}  // namespace whyrss::shim
