// A value in JSON, null where it is not known.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace whyrss {

template <typename T>
nlohmann::ordered_json optional_json(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace whyrss
