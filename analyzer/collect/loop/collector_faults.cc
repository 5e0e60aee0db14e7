// What the collector says of what it could not write: in the recording, as long as its manifest has room, and to
// record.
#include <fmt/format.h>
#include <sys/socket.h>

#include "collect/loop/collector.h"

namespace whyrss {

// At once: the collector may be killed later, and the log has no reserve.
void Collector::report_faults() {
  log(describe(faults_.list().back(), setup_.manifest.started_ns));
  write_manifest();
}

void Collector::send_faults() {
  for (const WriteFault& fault : faults_.list())
    send_to_record(fmt::format("fault {}\n", describe(fault, setup_.manifest.started_ns)));
}

void Collector::send_to_record(const std::string& text) const {
  if (setup_.control_fd >= 0) send(setup_.control_fd, text.data(), text.size(), MSG_NOSIGNAL);
}

}  // namespace whyrss
