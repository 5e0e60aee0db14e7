// A C++ plugin of a C program: exceptions must pass, and operator new, which did not exist when the
// library was loaded, must be seen.
#include <new>
#include <stdexcept>

#include "shim/whyrss.h"

namespace {

__attribute__((noinline)) void throw_if(bool wanted) {
  if (wanted) throw std::runtime_error("thrown on purpose");
}

}  // namespace

extern "C" int run_plugin() {
  int caught = 0;
  for (int round = 0; round < 10; ++round) {
    try {
      throw_if(round >= 0);
    } catch (const std::runtime_error&) {
      ++caught;
    }
  }
  WHYRSS_MARK("begin");
  // By name: a new-expression may be optimised away. The last record of a thread may be taken back: none is the last.
  constexpr std::align_val_t kWide{64};
  void* plain = ::operator new[](100'096);
  void* wide = ::operator new[](128'000, kWide);
  ::operator delete[](plain);
  ::operator delete[](wide, kWide);
  WHYRSS_MARK("end");
  return caught == 10 ? 0 : 1;
}
