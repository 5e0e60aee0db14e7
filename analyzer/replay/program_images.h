// The program images of a process (from exec or fork to the next), with what they call by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "decode/image_tables.h"
#include "decode/process_input.h"
#include "decode/stack_store.h"
#include "model/stack_table.h"

namespace whyrss {

// Tables by pid and since_ns: fork children refer to their ancestors' so.
using NamedTables = std::map<std::pair<std::uint32_t, std::uint64_t>, ImageTables*>;

struct ProgramImages {
  std::vector<std::unique_ptr<ImageTables>> images;  // one per attach record, all definitions loaded
  std::vector<std::uint64_t> attached_ns;            // of each
  std::size_t damaged_records = 0;
};

// `records`: of input's stream. Adds to `named`. All but `records` outlive the images.
ProgramImages define_images(const ProcessInput& input, const std::vector<EventRecord>& records, StackTable& table,
                            StackStore& store, NamedTables& named);

// Where `image`, of a fork child, says whose tables it goes on with: its parent may have run exec meanwhile, or be a
// process that was not recorded. False: it does not say.
bool inherit_named_tables(ImageTables& image, std::uint64_t fork_ns, const NamedTables& named);

}  // namespace whyrss
