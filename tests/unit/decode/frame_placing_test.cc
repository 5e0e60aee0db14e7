#include "decode/frame_placing.h"

#include <gtest/gtest.h>

#include <string>

namespace whyrss::frame_placing_test {
namespace {

constexpr std::uint16_t kUnknown = trace::kNoNativeIndex;

// One frame in an eval call of its own.
trace::PythonFrame call(std::uint32_t code, std::uint16_t native_index = kUnknown) {
  return {.code_id = code,
          .last_instruction_bytes = 0,
          .native_index = native_index,
          .flags = trace::PythonFrameFlags::entry,
          .reserved = 0};
}

// One that the frame after it called without leaving the eval loop.
trace::PythonFrame inlined(std::uint32_t code, std::uint16_t native_index = kUnknown) {
  trace::PythonFrame frame = call(code, native_index);
  frame.flags = 0;
  return frame;
}

std::string text(const PythonFrames& frames) {
  std::string codes;
  for (const trace::PythonFrame& frame : frames) codes += std::to_string(frame.code_id);
  return codes;
}

// Native frames as letters, E an eval call; the outcome has codes in their places: "before|n|12|after".
std::string placed(const std::string& native, const PythonFrames& python, bool is_cut = false) {
  std::vector<bool> is_eval;
  for (const char frame : native) is_eval.push_back(frame == 'E');
  const PlacedFrames found = place_python_frames(is_eval, python, is_cut);
  std::string result = text(found.before);
  for (std::size_t i = 0; i < native.size(); ++i)
    result += "|" + (found.instead[i].empty() ? std::string(1, native[i]) : text(found.instead[i]));
  return result + "|" + text(found.after);
}

TEST(FramePlacing, WhoSaysWhereItRunsIsPlacedThere) {
  EXPECT_EQ(placed("nEnEs", {inlined(1, 1), call(2, 1), call(3, 3)}), "|n|12|n|3|s|");
}

TEST(FramePlacing, OthersAreCountedFromTheStartOfTheThread) {
  EXPECT_EQ(placed("nEnEs", {call(1), call(2)}), "|n|1|n|2|s|");
  EXPECT_EQ(placed("nEnEs", {call(1), inlined(2), call(3)}), "|n|1|n|23|s|");
  EXPECT_EQ(placed("nEs", {call(1), call(2)}), "1|n|2|s|");
  EXPECT_EQ(placed("nEnEs", {call(1)}), "|n|E|n|1|s|");
}

TEST(FramePlacing, InAStackThatIsCutFromTheInnermost) {
  EXPECT_EQ(placed("nEnE", {call(1), call(2), call(3), call(4)}, true), "|n|1|n|2|34");
}

TEST(FramePlacing, KeepsTheOrderOfFramesOfWhichSomeAreNotPlaced) {
  // CPython 3.10 beyond 256 native frames: the outermost lie in calls that were cut off.
  EXPECT_EQ(placed("nEnEnE", {call(1, 1), call(2, 3), call(3), call(4), call(5)}, true), "|n|1|n|2|n|3|45");
  EXPECT_EQ(placed("nEnEs", {call(1), call(2, 3)}), "|n|1|n|2|s|");
  EXPECT_EQ(placed("nEnEs", {call(1, 1), call(2), call(3, 3)}), "|n|12|n|3|s|");
  EXPECT_EQ(placed("EEs", {call(1, 1), call(2, 0), call(3)}), "|E|123|s|");
}

TEST(FramePlacing, WithoutNativeFramesThereIsTheOrderAlone) {
  EXPECT_EQ(placed("", {call(1), call(2, 7)}), "12|");
  EXPECT_EQ(placed("", {call(1), call(2)}, true), "|12");
}

}  // namespace
}  // namespace whyrss::frame_placing_test
