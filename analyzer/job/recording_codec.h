// A recording in a part to bytes and back (part.proto). Equal values are equal bytes; what is read may be anybody's.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "job/part.h"
#include "support/result.h"

namespace whyrss {

std::string encode_recording(const ReducedRecording& recording);
Result<ReducedRecording> decode_recording(std::string_view bytes);

// What a process takes of a part, with the texts of its lines, though others may use them too.
std::size_t encoded_bytes(const ReducedRecording& recording, const ReducedProcess& process);

}  // namespace whyrss
