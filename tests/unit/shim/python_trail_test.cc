// Frames that a walk of the interpreter's chain need not read again: never other ones than a walk finds.
#include "shim/stacks/python_trail.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <random>
#include <tuple>
#include <vector>

namespace whyrss::shim {
namespace {

struct Frame {
  Frame* previous;
  std::uint64_t code, instruction;
};

// Frames on pages of their own, which cannot be read once they are freed; the one freed last is made first.
class Frames {
 public:
  static constexpr std::size_t kCount = 200, kPage = 4096;

  Frames() {
    memory_ = static_cast<std::byte*>(mmap(nullptr, kCount * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::size_t i = 0; i < kCount; ++i) free_.push_back(memory_ + i * kPage);
  }
  ~Frames() { munmap(memory_, kCount * kPage); }
  Frames(const Frames&) = delete;
  Frames& operator=(const Frames&) = delete;

  Frame* make(Frame* previous, std::uint64_t code) {
    std::byte* page = free_.back();
    free_.pop_back();
    mprotect(page, kPage, PROT_READ | PROT_WRITE);
    return new (page) Frame{.previous = previous, .code = code, .instruction = 0};
  }
  void free(Frame* frame) {
    mprotect(frame, kPage, PROT_NONE);
    free_.push_back(reinterpret_cast<std::byte*>(frame));
  }

 private:
  std::byte* memory_;
  std::vector<std::byte*> free_;
};

using Shown = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;  // code, instruction, place of its eval call

// Walks as the shim does: what is met is taken from the stack before.
struct Walker {
  std::unique_ptr<PythonTrail> trail = std::make_unique<PythonTrail>();
  std::vector<Shown> shown{PythonTrail::kEnd};  // from the end, as PythonMemo has them
  std::size_t passed = 0, unchanged = 0;

  static PythonTrail::Change change_of(const PythonHop& hop) {
    const auto& frame = *reinterpret_cast<const Frame*>(hop.frame);
    if (reinterpret_cast<const std::byte*>(frame.previous) != hop.previous) return PythonTrail::Change::link;
    const bool same = frame.code == hop.code && frame.instruction == hop.instruction;
    return same ? PythonTrail::Change::none : PythonTrail::Change::content;
  }

  std::vector<Shown> walk(const Frame* top, const void* state) {
    std::vector<Shown> inner;
    const PythonHop* met = nullptr;
    trail->begin(state, nullptr);
    for (const Frame* frame = top; frame != nullptr; frame = frame->previous) {
      const auto* place = reinterpret_cast<const std::byte*>(frame);
      met = trail->meets(place, nullptr, change_of);
      if (met != nullptr) break;
      inner.emplace_back(frame->code, frame->instruction, frame->code + 1);
      trail->pass({.frame = place,
                   .cframe = nullptr,
                   .previous = reinterpret_cast<const std::byte*>(frame->previous),
                   .cframe_previous = nullptr,
                   .code = frame->code,
                   .instruction = frame->instruction,
                   .eval_address = 0,
                   .python = 0,
                   .owner = 0,
                   .is_entry = 0,
                   .cframe_was_read = false,
                   .is_python = true});
    }
    passed += inner.size();
    const std::size_t rest = met != nullptr ? met->python : PythonTrail::kEnd;
    if (met != nullptr) {
      EXPECT_EQ(met->eval_address, std::get<2>(shown[rest]));
    }
    std::size_t index = rest;
    for (std::size_t i = inner.size(); i-- > 0;) shown[--index] = inner[i];
    if (met != nullptr && trail->is_unchanged(met))
      ++unchanged;
    else
      trail->remember(met, rest, false, [&](std::size_t i) { return std::get<2>(inner[i]); });
    return {shown.begin() + static_cast<std::ptrdiff_t>(index), shown.end()};
  }
};

std::vector<Shown> truth_of(const Frame* top) {
  std::vector<Shown> all;
  for (const Frame* frame = top; frame != nullptr; frame = frame->previous)
    all.emplace_back(frame->code, frame->instruction, frame->code + 1);
  return all;
}

// A thread of Python code that calls, returns, goes on, and now and then changes what never changes in CPython.
struct Program {
  Frames frames;
  std::vector<Frame*> stack;  // outermost first
  std::mt19937 random{7};

  Frame* top() { return stack.empty() ? nullptr : stack.back(); }
  void call() {
    if (stack.size() < 100) stack.push_back(frames.make(top(), 1 + random() % 5));
  }
  void leave() {
    if (stack.size() < 2) return;
    frames.free(stack.back());
    stack.pop_back();
  }
  void step() {
    switch (random() % 8) {
      case 0:
      case 1:
        call();
        break;
      case 2:
        leave();
        break;
      case 3:
        for (std::size_t i = random() % 20; i > 0; --i) leave();
        for (std::size_t i = random() % 20; i > 0; --i) call();
        break;
      case 4:
        stack[random() % stack.size()]->instruction = random() % 4;
        break;
      default:
        top()->instruction = random() % 4;
    }
  }
};

TEST(PythonTrail, EqualsAWalk) {
  Program program;
  Walker walker;
  std::size_t frames = 0;
  int other_state = 0;
  program.call();
  for (int i = 0; i < 20'000; ++i) {
    program.step();
    const void* state = i % 1000 == 0 ? &other_state : static_cast<const void*>(&program);
    const std::vector<Shown> truth = truth_of(program.top());
    ASSERT_EQ(walker.walk(program.top(), state), truth) << i;
    frames += truth.size();
  }
  EXPECT_LT(walker.passed, frames / 3);
  EXPECT_GT(walker.unchanged, 200U);
}

TEST(PythonTrail, WalksNothingButTheFrameWhoseInstructionMoved) {
  Program program;
  Walker walker;
  for (int i = 0; i < 50; ++i) program.call();
  walker.walk(program.top(), &program);
  ASSERT_EQ(walker.passed, 50U);
  for (std::uint64_t i = 1; i <= 10; ++i) {
    program.top()->instruction = i;
    EXPECT_EQ(walker.walk(program.top(), &program), truth_of(program.top()));
  }
  EXPECT_EQ(walker.passed, 60U);
  walker.walk(program.top(), &program);
  EXPECT_EQ(walker.passed, 60U);
  EXPECT_EQ(walker.unchanged, 1U);
}

TEST(PythonTrail, ForgetsWhenItIsReported) {
  Program program;
  Walker walker;
  for (int i = 0; i < 10; ++i) program.call();
  walker.walk(program.top(), &program);
  walker.trail->forget();
  EXPECT_EQ(walker.walk(program.top(), &program), truth_of(program.top()));
  EXPECT_EQ(walker.passed, 20U);
}

TEST(PythonTrail, WalksADeeperStackThanItHolds) {
  std::vector<Frame> frames(PythonTrail::kEnd + 100);
  for (std::size_t i = 1; i < frames.size(); ++i) frames[i] = {.previous = &frames[i - 1], .code = i, .instruction = 0};
  PythonTrail trail;
  for (int round = 0; round < 2; ++round) {
    trail.begin(&trail, nullptr);
    std::size_t passed = 0;
    const PythonHop* met = nullptr;
    for (const Frame* frame = &frames.back(); frame != nullptr && met == nullptr; frame = frame->previous) {
      const auto* place = reinterpret_cast<const std::byte*>(frame);
      met = trail.meets(place, nullptr, Walker::change_of);
      if (met == nullptr) {
        trail.pass({.frame = place,
                    .cframe = nullptr,
                    .previous = reinterpret_cast<const std::byte*>(frame->previous),
                    .cframe_previous = nullptr,
                    .code = frame->code,
                    .instruction = 0,
                    .eval_address = 0,
                    .python = 0,
                    .owner = 0,
                    .is_entry = 0,
                    .cframe_was_read = false,
                    .is_python = true});
        ++passed;
      }
    }
    EXPECT_EQ(passed, frames.size());
    trail.remember(met, PythonTrail::kEnd, false, [](std::size_t) { return 0; });
  }
}

}  // namespace
}  // namespace whyrss::shim
