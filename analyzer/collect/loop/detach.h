// Makes this process one that the job does not notice: a pipe to `tee` must close with the job, a
// terminal's Ctrl-C and the job's signals must not end it, its limits must not cripple it.
#pragma once

#include <vector>

namespace whyrss {

// Own session, stdio on /dev/null, cwd /, no descriptors but `keep`, no LD_PRELOAD and WHYRSS_*, signals
// ignored (it ends by itself), soft limits raised to the hard ones.
void detach_from_job(const std::vector<int>& keep);

}  // namespace whyrss
