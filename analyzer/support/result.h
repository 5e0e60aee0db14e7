// Result<T>: a value or one line that says what failed, where, and what to do. For everything that
// comes from outside (files, /proc, ELF). Our own mistakes are assertions, kept on in release builds.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace whyrss {

struct Error {
  std::string message;
  int number = 0;  // errno, where it is known
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& operator*() { return std::get<0>(state_); }
  const T& operator*() const { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  [[nodiscard]] const std::string& error() const { return std::get<1>(state_).message; }
  [[nodiscard]] const Error& failure() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

struct Done {};
using Status = Result<Done>;

// Stays on in release builds: a broken invariant must never become a wrong figure.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "whyrss: internal error: %s (please report it)\n", what);
  std::abort();
}

}  // namespace whyrss
