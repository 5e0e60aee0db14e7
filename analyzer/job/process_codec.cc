#include "job/process_codec.h"

#include <algorithm>
#include <utility>

namespace whyrss {
namespace {

using namespace part_codec;

enum class ProcessField : Tag {
  pid = 1,
  parent = 2,
  name = 3,
  born_ms = 4,
  ended_ms = 5,
  flags = 6,
  end_signal = 7,
  rank = 8,
  local_rank = 9,
  world_size = 10,
  rss = 11,
  pss_peak = 12,
  copied = 13,
  cause = 14,
  lines = 15,
  moment_ms = 16,
  moment_bytes = 17,
  rss_bucket = 18,
  verdict = 19,
  line_error_kib = 20,
};
enum class VerdictField : Tag { id = 1, severity = 2, bytes = 3, headline = 4 };

constexpr std::uint32_t kByFork = 1, kTraced = 2, kWalked = 4, kOomKilled = 8;
constexpr std::size_t kCauseNumbers = 11, kFigureNumbers = 5;

Numbers cause_numbers(const ReducedProcess& process) {
  Numbers numbers;
  for (const CauseFigures& cause : process.causes)
    for (const std::int64_t value :
         {static_cast<std::int64_t>(cause.cause), cause.first, cause.last, cause.peak, cause.at_peak, cause.sole_owner,
          static_cast<std::int64_t>(cause.omitted), cause.omitted_growth, cause.omitted_resident, cause.omitted_at_peak,
          cause.omitted_most})
      numbers.push_back(value);
  return numbers;
}

Numbers line_numbers(const ReducedProcess& process) {
  Numbers numbers;
  for (const LineFigures& line : process.lines)
    for (const std::int64_t value : {static_cast<std::int64_t>(line.cause), static_cast<std::int64_t>(line.line),
                                     line.growth, line.resident, line.at_peak})
      numbers.push_back(value);
  return numbers;
}

// Most jobs have none: blocks of more than 32 KiB are exact.
Numbers line_errors(const ReducedProcess& process) {
  Numbers numbers;
  for (const LineFigures& line : process.lines) numbers.push_back(line.error_kib);
  while (!numbers.empty() && numbers.back() == 0) numbers.pop_back();
  return numbers;
}

std::pair<Numbers, Numbers> moment_numbers(const ReducedProcess& process) {
  Numbers times, bytes;
  MemoryMoment before;
  for (const MemoryMoment& moment : process.moments) {
    times.push_back(moment.time_ms - before.time_ms);
    const std::size_t count_at = bytes.size();
    bytes.push_back(0);
    for (std::size_t cause = 0; cause < kCauseCount; ++cause) {
      if (moment.bytes[cause] == before.bytes[cause]) continue;
      ++bytes[count_at];
      bytes.push_back(static_cast<std::int64_t>(cause));
      bytes.push_back(moment.bytes[cause] - before.bytes[cause]);
    }
    before = moment;
  }
  return {std::move(times), std::move(bytes)};
}

Cause cause_of(std::int64_t number) {
  if (number < 0 || number >= static_cast<std::int64_t>(kCauseCount)) throw Malformed();
  return static_cast<Cause>(number);
}

void take_causes(const Numbers& numbers, ReducedProcess& process) {
  for (const std::int64_t* at = numbers.data(); at != numbers.data() + numbers.size(); at += kCauseNumbers)
    process.causes.push_back({.cause = cause_of(at[0]),
                              .first = at[1],
                              .last = at[2],
                              .peak = at[3],
                              .at_peak = at[4],
                              .sole_owner = at[5],
                              .omitted = static_cast<std::uint64_t>(at[6]),
                              .omitted_growth = at[7],
                              .omitted_resident = at[8],
                              .omitted_at_peak = at[9],
                              .omitted_most = at[10]});
}

void take_lines(const Numbers& numbers, ReducedProcess& process) {
  process.lines.reserve(numbers.size() / kFigureNumbers);
  for (const std::int64_t* at = numbers.data(); at != numbers.data() + numbers.size(); at += kFigureNumbers) {
    if (at[1] < 0 || at[1] > UINT32_MAX) throw Malformed();
    process.lines.push_back({.cause = cause_of(at[0]),
                             .line = static_cast<std::uint32_t>(at[1]),
                             .growth = at[2],
                             .resident = at[3],
                             .at_peak = at[4]});
  }
}

void take_line_errors(const Numbers& numbers, ReducedProcess& process) {
  if (numbers.size() > process.lines.size()) throw Malformed();
  for (std::size_t i = 0; i < numbers.size(); ++i) process.lines[i].error_kib = numbers[i];
}

// Sums of numbers from a file may leave their range: those of unsigned ones wrap.
std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

void take_moments(const Numbers& times, const Numbers& bytes, ReducedProcess& process) {
  MemoryMoment moment;
  auto at = bytes.begin();
  process.moments.reserve(times.size());
  for (const std::int64_t time : times) {
    if (at == bytes.end()) throw Malformed();
    moment.time_ms = wrapping_sum(moment.time_ms, time);
    const std::int64_t changes = *at++;
    if (changes < 0 || changes > (bytes.end() - at) / 2) throw Malformed();
    for (std::int64_t i = 0; i < changes; ++i, at += 2) {
      std::int64_t& value = moment.bytes[static_cast<std::size_t>(cause_of(at[0]))];
      value = wrapping_sum(value, at[1]);
    }
    process.moments.push_back(moment);
  }
}

ReducedVerdict decode_verdict(protozero::pbf_message<VerdictField> message, const std::vector<std::string>& texts) {
  ReducedVerdict verdict;
  while (message.next()) {
    switch (message.tag()) {
      case VerdictField::id:
        verdict.id = text_at(texts, unsigned_of(message));
        break;
      case VerdictField::severity:
        verdict.severity =
            static_cast<Severity>(std::min(unsigned_of(message), static_cast<std::uint64_t>(Severity::problem)));
        break;
      case VerdictField::bytes:
        verdict.bytes = signed_of(message);
        break;
      case VerdictField::headline:
        verdict.headline = text_of(message);
        break;
      default:
        message.skip();
    }
  }
  return verdict;
}

void take_flags(std::uint64_t flags, ReducedProcess& process) {
  process.born_by_fork = (flags & kByFork) != 0;
  process.traced = (flags & kTraced) != 0;
  process.walked = (flags & kWalked) != 0;
  process.oom_killed = (flags & kOomKilled) != 0;
}

void take_rss(const Numbers& numbers, ReducedProcess& process) {
  if (numbers.size() < 4) throw Malformed();
  process.rss_first = numbers[0];
  process.rss_last = numbers[1];
  process.rss_peak = numbers[2];
  process.high_water = numbers[3];
}

void take_buckets(const Numbers& numbers, ReducedProcess& process) {
  for (std::size_t i = 0; i + 1 < numbers.size(); i += 2) {
    if (numbers[i] < LogSketch::kFirstBucket || numbers[i] > LogSketch::kLastBucket) throw Malformed();
    process.rss_by_time.add_bucket(static_cast<std::int32_t>(numbers[i]), static_cast<std::uint64_t>(numbers[i + 1]));
  }
}

}  // namespace

std::string encode_process(const ReducedProcess& process, Texts& texts) {
  std::string bytes;
  protozero::pbf_builder<ProcessField> builder(bytes);
  add_number(builder, ProcessField::pid, process.pid);
  add_number(builder, ProcessField::parent, process.parent);
  builder.add_uint32(ProcessField::name, texts.number(process.name));
  add_number(builder, ProcessField::born_ms, process.born_ms);
  add_optional(builder, ProcessField::ended_ms, process.ended_ms);
  builder.add_uint32(ProcessField::flags, (process.born_by_fork ? kByFork : 0) | (process.traced ? kTraced : 0) |
                                              (process.walked ? kWalked : 0) | (process.oom_killed ? kOomKilled : 0));
  builder.add_uint32(ProcessField::end_signal, texts.number(process.end_signal));
  add_optional(builder, ProcessField::rank, process.rank);
  add_optional(builder, ProcessField::local_rank, process.local_rank);
  add_optional(builder, ProcessField::world_size, process.world_size);
  add_packed(builder, ProcessField::rss, {process.rss_first, process.rss_last, process.rss_peak, process.high_water});
  add_optional(builder, ProcessField::pss_peak, process.pss_peak);
  add_number(builder, ProcessField::copied, process.copied);
  add_packed(builder, ProcessField::cause, cause_numbers(process));
  add_packed(builder, ProcessField::lines, line_numbers(process));
  add_packed(builder, ProcessField::line_error_kib, line_errors(process));
  const auto [times, moments] = moment_numbers(process);
  add_packed(builder, ProcessField::moment_ms, times);
  add_packed(builder, ProcessField::moment_bytes, moments);
  Numbers buckets;
  for (const auto& [bucket, weight] : process.rss_by_time.buckets()) {
    buckets.push_back(bucket);
    buckets.push_back(static_cast<std::int64_t>(weight));
  }
  add_packed(builder, ProcessField::rss_bucket, buckets);
  for (const ReducedVerdict& verdict : process.verdicts) {
    protozero::pbf_builder<VerdictField> inner(builder, ProcessField::verdict);
    inner.add_uint32(VerdictField::id, texts.number(verdict.id));
    inner.add_uint32(VerdictField::severity, static_cast<std::uint32_t>(verdict.severity));
    add_number(inner, VerdictField::bytes, verdict.bytes);
    add_text(inner, VerdictField::headline, verdict.headline);
  }
  return bytes;
}

ReducedProcess decode_process(protozero::data_view bytes, const std::vector<std::string>& texts) {
  protozero::pbf_message<ProcessField> message(bytes);
  ReducedProcess process;
  Numbers times, moments, errors;
  while (message.next()) {
    switch (message.tag()) {
      case ProcessField::pid:
        process.pid = signed_of(message);
        break;
      case ProcessField::parent:
        process.parent = signed_of(message);
        break;
      case ProcessField::name:
        process.name = text_at(texts, unsigned_of(message));
        break;
      case ProcessField::born_ms:
        process.born_ms = signed_of(message);
        break;
      case ProcessField::ended_ms:
        process.ended_ms = signed_of(message);
        break;
      case ProcessField::flags:
        take_flags(unsigned_of(message), process);
        break;
      case ProcessField::end_signal:
        process.end_signal = text_at(texts, unsigned_of(message));
        break;
      case ProcessField::rank:
        process.rank = signed_of(message);
        break;
      case ProcessField::local_rank:
        process.local_rank = signed_of(message);
        break;
      case ProcessField::world_size:
        process.world_size = signed_of(message);
        break;
      case ProcessField::rss:
        take_rss(numbers_of(message), process);
        break;
      case ProcessField::pss_peak:
        process.pss_peak = signed_of(message);
        break;
      case ProcessField::copied:
        process.copied = signed_of(message);
        break;
      case ProcessField::cause:
        take_causes(numbers_of(message, kCauseNumbers), process);
        break;
      case ProcessField::lines:
        take_lines(numbers_of(message, kFigureNumbers), process);
        break;
      case ProcessField::line_error_kib:
        errors = numbers_of(message);
        break;
      case ProcessField::moment_ms:
        times = numbers_of(message);
        break;
      case ProcessField::moment_bytes:
        moments = numbers_of(message);
        break;
      case ProcessField::rss_bucket:
        take_buckets(numbers_of(message, 2), process);
        break;
      case ProcessField::verdict:
        process.verdicts.push_back(decode_verdict(protozero::pbf_message<VerdictField>(view_of(message)), texts));
        break;
      default:
        message.skip();
    }
  }
  take_moments(times, moments, process);
  take_line_errors(errors, process);
  return process;
}

}  // namespace whyrss
