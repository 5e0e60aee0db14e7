// The directory of a recording: its name, who may use it, its lock.
#pragma once

#include <sys/types.h>

#include <string>

#include "support/file.h"
#include "support/result.h"

namespace whyrss {

// Puts in %p (pid), %h (host), %j (job id, else that of the session), %r (rank or 0), %% ; reads the job's variables
// from the environment. Other text stays as it is.
std::string expand_tokens(const std::string& pattern, pid_t pid);

// So that expand_tokens gives the text back.
std::string without_tokens(const std::string& text);

// Absolute, with `.` and `..` resolved by name only.
std::string absolute_path(const std::string& path);

enum class WhenTaken { refuse, replace, choose_next };

struct RecordingDirectory {
  std::string path;
  Fd lock;  // held (flock) as long as this process lives
};

// Makes and locks the directory `path`. When it holds something already: an error, or a new recording
// in its place (only of what is a recording that no process writes), or DIR.1, DIR.2 ...
Result<RecordingDirectory> make_recording_directory(const std::string& path, WhenTaken when_taken);

}  // namespace whyrss
