// The line protocol on the socket between `record` and its collector.
//
//   record -> collector   started          the command's exec succeeded
//                         failed           it did not: remove the recording and end
//                         max_rss N        KiB: the most that the command, or a child that it waited for, ever had
//                         exit N           the command ended with this code
//                         signal SIGNAME   or by this signal
//   collector -> record   metrics URL      before the session: live figures are served there
//                         warning TEXT     before the session: this does not work, and the recording goes on
//                         fault TEXT       after exit/signal: this could not be written
//                         living N         after exit/signal: so many traced processes go on
//   end of file           the other side has ended; for record: the recording is complete
#pragma once

#include <optional>
#include <string>

namespace whyrss {

// A line buffer over a non-blocking descriptor.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}
  // The next whole line without its end, if it is there already.
  std::optional<std::string> next();
  [[nodiscard]] bool at_end() const { return at_end_; }

 private:
  int fd_;
  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace whyrss
