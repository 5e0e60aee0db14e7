#include "collect/loop/write_faults.h"

#include <algorithm>
#include <cstring>

#include "support/clock.h"

namespace whyrss {
namespace {

std::string text_of(const Error& error) { return error.number != 0 ? std::strerror(error.number) : error.message; }

}  // namespace

WriteFault& WriteFaults::at(const std::string& path, const Error& error) {
  const std::string text = text_of(error);
  auto fault = std::ranges::find(faults_, text, [](const Fault& one) { return one.known.error; });
  const std::int64_t now_ns = monotonic_ns();
  const std::string file = path.starts_with(directory_ + "/") ? path.substr(directory_.size() + 1) : path;
  if (fault == faults_.end()) {
    fault = faults_.insert(fault, Fault{});
    fault->known.file = file;
    fault->known.error = text;
    fault->known.from_ns = now_ns;
    has_news_ = true;
  }
  fault->files.insert(file);
  fault->known.other_files = static_cast<std::int64_t>(fault->files.size()) - 1;
  fault->last_ns = now_ns;
  fault->is_over = false;
  is_failing_ = true;
  return fault->known;
}

void WriteFaults::lost_frame(const std::string& path, trace::FrameKind kind, const Error& error) {
  WriteFault& fault = at(path, error);
  ++(kind == trace::FrameKind::walk ? fault.walks : fault.frames);
}

void WriteFaults::lost_events(const std::string& path, std::uint64_t events, const Error& error) {
  at(path, error).events += static_cast<std::int64_t>(events);
}

void WriteFaults::wrote() {
  if (!is_failing_) return;
  for (Fault& fault : faults_) fault.is_over = true;
  is_failing_ = false;
}

std::vector<WriteFault> WriteFaults::list() const {
  std::vector<WriteFault> result;
  for (const Fault& fault : faults_) {
    result.push_back(fault.known);
    if (fault.is_over) result.back().until_ns = fault.last_ns;
  }
  return result;
}

}  // namespace whyrss
