// What the environment asks for. Nothing set wrongly may stop the job: the first mistake becomes one
// line of text, and tracing stays off.
#pragma once

#include "shim/sys/raw_io.h"
#include "shim/trace/pool.h"

namespace whyrss::shim {

enum class AtEnd { usual, walk, trim };        // trim_at_end.h
enum class AllocatorStats { usual, on, off };  // allocator_stats.h

// As WHYRSS_SESSION: no recording could be started, as the first program of this tree has said.
inline constexpr std::string_view kNoSession = "none";

struct Settings {
  bool use_libunwind = false;             // unwinder=libunwind; auto is our own, which opens no descriptors
  const char* output = nullptr;           // WHYRSS_OUTPUT, nullptr: not set
  trace::SessionId session{};             // WHYRSS_SESSION=<32 hex>:<path of the pool>, or kNoSession
  const char* pool_path = nullptr;        // nullptr: not set
  bool touch_off = false;                 // touch=off: page faults are not sampled
  std::uint32_t touch_period_faults = 0;  // each Nth fault; 0: auto (touch_event.cc)
  const char* exe_pattern = nullptr;      // exe=GLOB: other programs are not traced
  std::size_t exe_pattern_bytes = 0;
  AtEnd at_end = AtEnd::usual;
  AllocatorStats allocator_stats = AllocatorStats::usual;
  bool exact = false;                      // mode=exact: every block; sampled otherwise
  std::uint64_t sample_bytes = 64 * 1024;  // mean distance of sampled small blocks
  std::uint64_t seed = 0;                  // seed=N: of all sampling (attach.cc); 0: another one in each process
  bool sample_objects = true;              // python_objects=off: none of CPython's allocator (python_memory.h)
  bool liveness_off = false;               // liveness=off: no table of live bytes per page
};

// Reads WHYRSS_OUTPUT, WHYRSS_SESSION and WHYRSS_OPTS. The pointers point into `environment`.
// False: `mistake` says what is wrong.
bool read_settings(const char* const* environment, Settings& settings, Text& mistake) noexcept;

// The array of variables that the kernel laid down, nullptr where it cannot be found. It is never freed. `environ` may
// be: setenv grows it with realloc and stores the new array afterwards, so that our realloc can meet a freed block
// there.
const char* const* initial_environment() noexcept;

// The value of `name` in `environment`, nullptr when it is not set.
const char* environment_value(const char* const* environment, std::string_view name) noexcept;

// "WHYRSS_SESSION" value -> id and path. False when it is malformed.
bool parse_session(const char* value, trace::SessionId& session, const char*& pool_path) noexcept;

}  // namespace whyrss::shim
