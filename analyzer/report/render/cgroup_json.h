// family.cgroup of the JSON report.
#pragma once

#include <nlohmann/json.hpp>

#include "model/account.h"

namespace whyrss {

nlohmann::ordered_json cgroup_json(const RecordingInfo& recording);

}  // namespace whyrss
