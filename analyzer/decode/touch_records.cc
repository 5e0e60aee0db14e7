#include "decode/touch_records.h"

#include <algorithm>

#include "decode/bytes.h"
#include "model/collector_frame.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

namespace {

std::uint32_t weight_of(const trace::TouchRecord& sample) {
  return sample.weight_faults & ~trace::TouchRecord::kCollecting;
}

TouchSample fault_of(const EventRecord& record, const trace::TouchRecord& sample) {
  return {.page = sample.address, .time_ns = record.time_ns, .weight = weight_of(sample)};
}

}  // namespace

std::optional<TouchSample> touch_sample(const EventRecord& record) {
  ByteReader reader(record.bytes);
  trace::TouchRecord sample{};
  if (record.kind != trace::RecordKind::touch || !reader.take(sample)) return std::nullopt;
  return fault_of(record, sample);
}

void count_touch(const EventRecord& record, TouchFigures& touch) {
  ByteReader reader(record.bytes);
  if (record.kind == trace::RecordKind::touch) {
    trace::TouchRecord sample{};
    if (!reader.take(sample)) return;
    touch.armed = true;
    touch.samples += 1;
    touch.faults += weight_of(sample);
    touch.missed += sample.missed_faults;
    return;
  }
  if (record.kind == trace::RecordKind::kernel_faults) {
    trace::KernelFaultsRecord call{};
    if (reader.take(call)) touch.counted_kernel_faults += std::uint64_t{call.faults} * call.weight_calls;
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

void take_touch(const EventRecord& record, ImageTables& image, ThreadStarts& threads, StackTable& stacks,
                AddressSpace& space) {
  ByteReader reader(record.bytes);
  if (record.kind == trace::RecordKind::touch) {
    trace::TouchRecord sample{};
    if (!reader.take(sample)) return;
    TouchSample fault = fault_of(record, sample);
    const bool by_collector = (sample.weight_faults & trace::TouchRecord::kCollecting) != 0;
    fault.stack = threads.in_thread(image.resolve(sample.stack_id).id, sample.tid);
    if (by_collector) fault.stack = under_collector(stacks, fault.stack);
    space.touch(fault);
  } else if (record.kind == trace::RecordKind::kernel_faults) {
    trace::KernelFaultsRecord call{};
    if (!reader.take(call)) return;
    space.touch_by_kernel(call.address, call.size_bytes, call.faults,
                          threads.in_thread(image.resolve(call.stack_id).id, call.tid), record.time_ns,
                          std::max(call.weight_calls, 1U));
  }
}

}  // namespace whyrss
