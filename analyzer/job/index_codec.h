// The index of a part to bytes and back (part.proto). Equal values are equal bytes; what is read may be anybody's.
#pragma once

#include <string>
#include <string_view>

#include "job/part.h"
#include "support/result.h"

namespace whyrss {

std::string encode_index(const PartIndex& index);
Result<PartIndex> decode_index(std::string_view bytes);

}  // namespace whyrss
