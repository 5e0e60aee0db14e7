// Names that stand once, however many refer to them: of a recording's mappings there are some hundreds, and millions of
// references.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace whyrss {

class NamePool {
 public:
  // Stays where it is as long as the pool.
  const std::string* keep(std::string_view name) {
    const auto found = names_.find(name);
    return found != names_.end() ? &*found : &*names_.emplace(name).first;
  }

 private:
  std::set<std::string, std::less<>> names_;
};

}  // namespace whyrss
