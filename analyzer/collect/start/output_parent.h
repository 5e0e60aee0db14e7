// The directory in which a recording is made: reached so that no other user can put another one into its place, or make
// the recording's files appear elsewhere.
//
//   /home/me/job          belongs to root or this user: fine
//   /tmp                  root's, sticky: others may write, but not touch what is ours; what lies there is passed
//                         through only where it is this user's or root's
//   /tmp/x, /data/shared  another user's, and others may write: these can swap what is in it; refused
//   a symbolic link       refused, but for those that belong to the system: root's, below directories of root alone
#pragma once

#include <string>

#include "support/folder.h"
#include "support/result.h"

namespace whyrss {

// The directory above the absolute `path`. Missing ones are made. Fails with the reason and what to do.
Result<Folder> open_output_parent(const std::string& path);

}  // namespace whyrss
