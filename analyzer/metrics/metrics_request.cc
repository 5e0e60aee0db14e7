#include "metrics/metrics_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "support/text.h"

namespace whyrss {
namespace {

constexpr int kOk = 200, kBad = 400, kNotFound = 404, kNotAllowed = 405, kTooLarge = 431;

std::string_view reason_of(int status) {
  switch (status) {
    case kOk:
      return "OK";
    case kNotFound:
      return "Not Found";
    case kNotAllowed:
      return "Method Not Allowed";
    case kTooLarge:
      return "Request Header Fields Too Large";
    default:
      return "Bad Request";
  }
}

std::string_view next_line(std::string_view& rest) {
  std::string_view line = take_until(rest, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_whole(std::string_view bytes) {
  while (!bytes.empty()) {
    const bool has_end = bytes.find('\n') != std::string_view::npos;
    if (next_line(bytes).empty() && has_end) return true;
  }
  return false;
}

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return lower;
}

bool is_target(std::string_view target) { return target == "/metrics" || target.starts_with("/metrics?"); }

}  // namespace

MetricsRequest parse_metrics_request(std::string_view bytes) {
  if (!is_whole(bytes.substr(0, kMostRequestBytes)))
    return {.status = bytes.size() >= kMostRequestBytes ? kTooLarge : 0};
  std::string_view first = next_line(bytes);
  const std::string_view method = take_until(first, ' ');
  const std::string_view target = take_until(first, ' ');
  if (method.empty() || !target.starts_with('/') || (first != "HTTP/1.1" && first != "HTTP/1.0"))
    return {.status = kBad};
  MetricsRequest request{.status = kOk, .wants_body = method != "HEAD"};
  if (method != "GET" && method != "HEAD") request.status = kNotAllowed;
  if (request.status == kOk && !is_target(target)) request.status = kNotFound;
  for (std::string_view line = next_line(bytes); !line.empty(); line = next_line(bytes)) {
    const std::string name = in_lower_case(take_until(line, ':'));
    if (name == "accept" && in_lower_case(line).find("application/openmetrics-text") != std::string::npos)
      request.format = MetricsFormat::openmetrics;
  }
  return request;
}

std::string render_answer(const MetricsRequest& request, std::string_view text) {
  const bool open = request.status == kOk && request.format == MetricsFormat::openmetrics;
  const std::string why = fmt::format("{}; live figures are at /metrics\n", reason_of(request.status));
  const std::string_view body = request.status == kOk ? text : std::string_view(why);
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}",
                     request.status, reason_of(request.status),
                     open                    ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                     : request.status == kOk ? "text/plain; version=0.0.4; charset=utf-8"
                                             : "text/plain; charset=utf-8",
                     body.size(), request.status == kNotAllowed ? "Allow: GET, HEAD\r\n" : "",
                     request.wants_body ? body : "");
}

}  // namespace whyrss
