#include "ingest/touch_records.h"

#include "ingest/bytes.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

void count_touch(const EventRecord& record, TouchFigures& touch) {
  ByteReader reader(record.bytes);
  if (record.kind == trace::RecordKind::touch) {
    trace::TouchRecord sample{};
    if (!reader.take(sample)) return;
    touch.armed = true;
    touch.samples += 1;
    touch.faults += sample.weight_faults;
    touch.missed += sample.missed_faults;
    return;
  }
  trace::TextRecord state{};
  if (!reader.take(state)) return;
  const std::string why = reader.take_text(state.text_bytes);
  if (reader.bad()) return;
  const bool armed = state.argument == static_cast<std::uint32_t>(trace::TouchState::armed);
  touch.armed = touch.armed || armed;
  touch.off_reason = armed ? "" : why;
}

}  // namespace whyrss
