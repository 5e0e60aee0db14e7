// A recording directory to its account.
#pragma once

#include <functional>
#include <string>

#include "model/account.h"
#include "replay/pictured_walks.h"
#include "support/folder.h"
#include "support/result.h"

namespace whyrss {

struct LoadSettings {
  std::function<void(double)> progress{};  // gets now and then how much is done, from 0 to 1
  PictureBudget pictures{};                // of address spaces: of none
};

// Reads what is there, also while it is being written, and after the collector, the target or both were
// killed: then info.incomplete_why says so, and what the shared memory still holds is read too, and moved
// into the recording once no process can write it any more, if the recording is this user's. Damage inside of it is
// counted and noted. Fails, with one line, only when `recording_dir` is no recording that this version can read.
Result<RecordingAccount> load_account(const std::string& recording_dir, const LoadSettings& settings = {});
// Of one that open_recording() has opened.
Result<RecordingAccount> load_account(const Folder& folder, const LoadSettings& settings = {});

}  // namespace whyrss
