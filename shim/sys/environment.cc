#include "shim/sys/environment.h"

#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "shim/sys/own_memory.h"

namespace whyrss::shim {
namespace {

bool is_value_of(const char* entry, std::string_view name) noexcept {
  return std::strncmp(entry, name.data(), name.size()) == 0 && entry[name.size()] == '=';
}

char* append(char* at, std::string_view text) noexcept {
  std::memcpy(at, text.data(), text.size());
  return at + text.size();
}

}  // namespace

bool set_in_environment(std::string_view name, std::string_view value) noexcept {
  std::size_t count = 0;
  while (__environ != nullptr && __environ[count] != nullptr) ++count;
  const std::size_t array_bytes = (count + 2) * sizeof(char*);
  auto** entries = static_cast<char**>(map_own(array_bytes + name.size() + value.size() + 2));
  if (entries == nullptr) return false;
  char* added = reinterpret_cast<char*>(entries) + array_bytes;
  *append(append(append(added, name), "="), value) = '\0';
  std::size_t kept = 0;
  for (std::size_t index = 0; index < count; ++index)
    if (!is_value_of(__environ[index], name)) entries[kept++] = __environ[index];
  entries[kept++] = added;
  entries[kept] = nullptr;
  __environ = entries;
  return true;
}

}  // namespace whyrss::shim
