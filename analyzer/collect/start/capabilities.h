// What this machine lets us see. Probed at the start of each recording and by doctor.
#pragma once

#include <string>
#include <vector>

namespace whyrss {

struct Capability {
  std::string name;  // stable, a key of the manifest
  bool works = false;
  std::string detail;           // what was found, or the error
  std::string missing_without;  // what reports cannot say
  std::string remedy;           // how to enable it; empty when it works
};

std::vector<Capability> probe_capabilities();

}  // namespace whyrss
