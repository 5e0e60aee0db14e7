#include "job/recording_codec.h"

#include "job/codec_fields.h"
#include "job/process_codec.h"

namespace whyrss {
namespace {

using namespace part_codec;

enum class RecordingField : Tag {
  text = 1,
  session = 2,
  host = 3,
  boot_id = 4,
  node = 5,
  job = 6,
  version = 7,
  started = 8,
  started_ns = 9,
  duration_ms = 10,
  mode = 11,
  incomplete_why = 12,
  complete = 13,
  oom_killed = 14,
  exit_code = 15,
  exit_signal = 16,
  lost_events = 17,
  lost_snapshots = 18,
  memory_total = 19,
  group_path = 20,
  group_limit = 21,
  group_peak = 22,
  line = 23,
  process = 24,
};

using RecordingPart = PlainField<ReducedRecording, RecordingField>;
constexpr std::array kRecordingFields{RecordingPart{RecordingField::session, &ReducedRecording::session},
                                      RecordingPart{RecordingField::host, &ReducedRecording::host},
                                      RecordingPart{RecordingField::boot_id, &ReducedRecording::boot_id},
                                      RecordingPart{RecordingField::node, &ReducedRecording::node},
                                      RecordingPart{RecordingField::job, &ReducedRecording::job},
                                      RecordingPart{RecordingField::version, &ReducedRecording::version},
                                      RecordingPart{RecordingField::started, &ReducedRecording::started},
                                      RecordingPart{RecordingField::started_ns, &ReducedRecording::started_ns},
                                      RecordingPart{RecordingField::duration_ms, &ReducedRecording::duration_ms},
                                      RecordingPart{RecordingField::mode, &ReducedRecording::mode},
                                      RecordingPart{RecordingField::incomplete_why, &ReducedRecording::incomplete_why},
                                      RecordingPart{RecordingField::complete, &ReducedRecording::complete},
                                      RecordingPart{RecordingField::oom_killed, &ReducedRecording::oom_killed},
                                      RecordingPart{RecordingField::exit_code, &ReducedRecording::exit_code},
                                      RecordingPart{RecordingField::exit_signal, &ReducedRecording::exit_signal},
                                      RecordingPart{RecordingField::lost_events, &ReducedRecording::lost_events},
                                      RecordingPart{RecordingField::lost_snapshots, &ReducedRecording::lost_snapshots},
                                      RecordingPart{RecordingField::memory_total, &ReducedRecording::memory_total},
                                      RecordingPart{RecordingField::group_path, &ReducedRecording::group_path},
                                      RecordingPart{RecordingField::group_limit, &ReducedRecording::group_limit},
                                      RecordingPart{RecordingField::group_peak, &ReducedRecording::group_peak}};

constexpr std::size_t kLineNumbers = 3;

void take_line_table(const Numbers& numbers, const std::vector<std::string>& texts, ReducedRecording& recording) {
  for (const std::int64_t* at = numbers.data(); at != numbers.data() + numbers.size(); at += kLineNumbers)
    recording.lines.push_back({.text = text_at(texts, static_cast<std::uint64_t>(at[0])),
                               .file = text_at(texts, static_cast<std::uint64_t>(at[1])),
                               .mapping = text_at(texts, static_cast<std::uint64_t>(at[2]))});
}

// Its processes refer to texts and lines, which stand before them.
void take_recording(protozero::pbf_message<RecordingField> message, ReducedRecording& recording) {
  std::vector<std::string> texts;
  while (message.next()) {
    if (take_plain(message, recording, kRecordingFields)) continue;
    switch (message.tag()) {
      case RecordingField::text:
        texts.push_back(text_of(message));
        break;
      case RecordingField::line: {
        expect_type(message, protozero::pbf_wire_type::length_delimited);
        const auto range = message.get_packed_uint32();
        const Numbers numbers(range.begin(), range.end());
        if (numbers.size() % kLineNumbers != 0) throw Malformed();
        take_line_table(numbers, texts, recording);
        break;
      }
      case RecordingField::process: {
        recording.processes.push_back(decode_process(view_of(message), texts));
        for (const LineFigures& line : recording.processes.back().lines)
          if (line.line >= recording.lines.size()) throw Malformed();
        break;
      }
      default:
        message.skip();
    }
  }
}

}  // namespace

std::string encode_recording(const ReducedRecording& recording) {
  Texts texts;
  std::vector<std::uint32_t> lines;
  for (const JobLine& line : recording.lines)
    for (const std::string* text : {&line.text, &line.file, &line.mapping}) lines.push_back(texts.number(*text));
  std::vector<std::string> processes;
  for (const ReducedProcess& process : recording.processes) processes.push_back(encode_process(process, texts));

  std::string bytes;
  protozero::pbf_builder<RecordingField> builder(bytes);
  for (const std::string& text : texts.list()) builder.add_string(RecordingField::text, text);
  add_plain(builder, recording, kRecordingFields);
  if (!lines.empty()) builder.add_packed_uint32(RecordingField::line, lines.begin(), lines.end());
  for (const std::string& process : processes) builder.add_message(RecordingField::process, process);
  return bytes;
}

Result<ReducedRecording> decode_recording(std::string_view bytes) {
  return decoded<ReducedRecording>(bytes, "a recording in it", [](protozero::data_view view) {
    ReducedRecording recording;
    take_recording(protozero::pbf_message<RecordingField>(view), recording);
    return recording;
  });
}

std::size_t encoded_bytes(const ReducedRecording& recording, const ReducedProcess& process) {
  constexpr std::size_t kPerText = 8;  // its tag, its length, and its number where a line refers to it
  Texts texts;
  std::size_t bytes = encode_process(process, texts).size();
  for (const LineFigures& line : process.lines) {
    const JobLine& named = recording.lines[line.line];
    for (const std::string* text : {&named.text, &named.file, &named.mapping}) texts.number(*text);
  }
  for (const std::string& text : texts.list()) bytes += text.size() + kPerText;
  return bytes + process.lines.size() * 3 * kPerText;
}

}  // namespace whyrss
