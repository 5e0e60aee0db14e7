#include "job/index_codec.h"

#include "job/codec_fields.h"

namespace whyrss {
namespace {

using namespace part_codec;

enum class IndexField : Tag { node_list = 1, entry = 2 };
enum class EntryField : Tag {
  boot_id = 1,
  host = 2,
  session = 3,
  node = 4,
  job = 5,
  version = 6,
  complete = 7,
  duration_ms = 8,
  processes = 9,
  stored_bytes = 10,
  raw_bytes = 11,
  checksum = 12,
};

using EntryPart = PlainField<PartEntry, EntryField>;
constexpr std::array kEntryFields{EntryPart{EntryField::boot_id, &PartEntry::boot_id},
                                  EntryPart{EntryField::host, &PartEntry::host},
                                  EntryPart{EntryField::session, &PartEntry::session},
                                  EntryPart{EntryField::node, &PartEntry::node},
                                  EntryPart{EntryField::job, &PartEntry::job},
                                  EntryPart{EntryField::version, &PartEntry::version},
                                  EntryPart{EntryField::complete, &PartEntry::complete},
                                  EntryPart{EntryField::duration_ms, &PartEntry::duration_ms},
                                  EntryPart{EntryField::processes, &PartEntry::processes},
                                  EntryPart{EntryField::stored_bytes, &PartEntry::stored_bytes},
                                  EntryPart{EntryField::raw_bytes, &PartEntry::raw_bytes}};

std::string encode_entry(const PartEntry& entry) {
  std::string bytes;
  protozero::pbf_builder<EntryField> builder(bytes);
  add_plain(builder, entry, kEntryFields);
  builder.add_fixed64(EntryField::checksum, entry.checksum);
  return bytes;
}

PartEntry decode_entry(protozero::pbf_message<EntryField> message) {
  PartEntry entry;
  while (message.next()) {
    if (take_plain(message, entry, kEntryFields)) continue;
    if (message.tag() == EntryField::checksum)
      entry.checksum = fixed_of(message);
    else
      message.skip();
  }
  return entry;
}

}  // namespace

std::string encode_index(const PartIndex& index) {
  std::string bytes;
  protozero::pbf_builder<IndexField> builder(bytes);
  for (const std::string& nodes : index.node_lists) builder.add_string(IndexField::node_list, nodes);
  for (const PartEntry& entry : index.entries) builder.add_message(IndexField::entry, encode_entry(entry));
  return bytes;
}

Result<PartIndex> decode_index(std::string_view bytes) {
  return decoded<PartIndex>(bytes, "its index", [](protozero::data_view view) {
    PartIndex index;
    protozero::pbf_message<IndexField> message(view);
    while (message.next()) {
      switch (message.tag()) {
        case IndexField::node_list:
          index.node_lists.push_back(text_of(message));
          break;
        case IndexField::entry:
          index.entries.push_back(decode_entry(protozero::pbf_message<EntryField>(view_of(message))));
          break;
        default:
          message.skip();
      }
    }
    return index;
  });
}

}  // namespace whyrss
