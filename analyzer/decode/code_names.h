// code_names.json: what the files of Python code are called by who reads a report, where Python's own name says
// nothing:
// "/tmp/ipykernel_7/1662815981.py" is "In[3]". A program that knows writes it into its recording (whyrss_ipython.py):
// one JSON object, path to name. One that is missing or damaged costs its names only.
#pragma once

#include <string>
#include <vector>

#include "model/stack_table.h"
#include "support/folder.h"

namespace whyrss {

// Renames the files of Python frames. Native ones must have their names already. What of the file could not be read is
// added to `notes`.
void apply_code_names(const Folder& recording, StackTable& stacks, std::vector<std::string>& notes);

}  // namespace whyrss
