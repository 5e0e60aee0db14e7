// The page without data (analyzer/web), and data put into it.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace whyrss {

// Base64 makes it a third longer, and the page without data has 0.2 MB: together they stay below 10 MB.
inline constexpr std::size_t kMostPacked = 7'200'000;

// As gzipped (gzip.h): the page unpacks it.
inline constexpr int kPageLevel = 6;

// By their number in all pages.
nlohmann::ordered_json html_causes();

void write_page(std::string_view packed, const std::function<void(std::string_view)>& write);

}  // namespace whyrss
