// RLIMIT_FSIZE as an error of the write (EFBIG) instead of the end of the process.
#pragma once

namespace whyrss {

// Catches SIGXFSZ where it would kill. It is not ignored: a program that this one starts gets what it would get anyway.
void catch_file_size_signal();

}  // namespace whyrss
