// Whether a recording is what its collector closed. What is missing, damaged or not its own becomes lines that begin
// with the file's name in the recording.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/account.h"
#include "recording/frame_file.h"
#include "recording/manifest.h"

namespace whyrss {

class RecordingCheck {
 public:
  // `manifest` must outlive it.
  explicit RecordingCheck(const Manifest& manifest);

  // Whether a process directory of that name may be one of the recording: it is listed, or nothing lists them.
  [[nodiscard]] bool is_own(const std::string& directory) const;

  // Whether that file must be there: its collector could make it, or nothing says that it could not.
  [[nodiscard]] bool was_made(const std::string& directory, trace::FileKind kind) const;

  // Of a file as it was read from that directory. What does not belong there is taken out of it.
  [[nodiscard]] std::vector<std::string> check_file(FrameFile& file, const FileIdentity& expected,
                                                    const std::string& directory) const;

  // Of the whole. `found`: the names of the process directories that are there.
  [[nodiscard]] std::vector<std::string> check_directories(const std::set<std::string>& found) const;

 private:
  [[nodiscard]] std::optional<std::uint64_t> frame_count(const std::string& directory, trace::FileKind kind) const;

  const Manifest* manifest_;
  std::map<std::string, ClosedProcess> processes_;
};

// The file's name in its directory.
const char* name_of(trace::FileKind kind);

// Such a recording is not complete, and says why.
void add_damage(const std::vector<std::string>& lines, RecordingInfo& info);

}  // namespace whyrss
