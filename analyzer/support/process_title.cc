#include "support/process_title.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace whyrss {
namespace {

std::span<char> g_place;

}  // namespace

void remember_arguments(int argc, char** argv) {
  if (argc < 1) return;
  // The kernel lays them out one behind the other.
  const char* const last = argv[argc - 1];
  g_place = {argv[0], last + std::strlen(last) + 1};
}

void show_arguments(const std::vector<std::string>& words) {
  if (g_place.empty()) return;
  std::memset(g_place.data(), 0, g_place.size());
  std::span<char> left = g_place.first(g_place.size() - 1);
  for (const std::string& word : words) {
    if (word.size() > left.size()) return;
    std::memcpy(left.data(), word.data(), word.size());
    left = left.subspan(std::min(word.size() + 1, left.size()));
  }
}

}  // namespace whyrss
