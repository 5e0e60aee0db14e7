// The message Process of part.proto. For part_codec.
#pragma once

#include <string>
#include <vector>

#include "job/codec_fields.h"
#include "job/part.h"

namespace whyrss {

std::string encode_process(const ReducedProcess& process, part_codec::Texts& texts);

// Throws what part_codec::decoded() takes.
ReducedProcess decode_process(protozero::data_view bytes, const std::vector<std::string>& texts);

}  // namespace whyrss
