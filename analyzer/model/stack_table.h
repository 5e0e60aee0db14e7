// Code lines and stacks of a whole recording, interned: ids instead of strings everywhere else.
// Ids are distinct types; 0 is "none" for each. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace whyrss {

enum class ModuleId : std::uint32_t {};
enum class FrameId : std::uint32_t {};
enum class StackId : std::uint32_t {};
inline constexpr ModuleId kNoModule{0};
inline constexpr StackId kEmptyStack{0};

// An ELF file that stacks refer to.
struct Module {
  std::string path;
  std::string build_id;  // raw bytes, may be empty
  friend auto operator<=>(const Module&, const Module&) = default;
};

enum class FrameKind : std::uint8_t { python, native };

// A Python frame is complete when it is read. A native one has (module, address) and gets its names
// from symbolize/: `function` "" and `line` 0 mean "not known".
struct Frame {
  FrameKind kind = FrameKind::native;
  std::string function;  // Python: qualified name
  std::string file;
  int line = 0;
  int end_line = 0, column = 0, end_column = 0;  // Python 3.11 on: UTF-8 bytes, from 1; 0: not known
  ModuleId module = kNoModule;
  std::uint64_t address = 0;  // ELF virtual address of the call (return address - 1)
  bool inlined = false;       // native: the compiler put this call into the next frame's code
  friend auto operator<=>(const Frame&, const Frame&) = default;
};

// What a native frame shows.
struct CodeLine {
  std::string function, file;  // "" = not known
  int line = 0;                // 0 = not known
  friend bool operator==(const CodeLine&, const CodeLine&) = default;
};

// Python code of the program itself that lies where libraries are installed (attribute/program_code.h).
struct ProgramCode {
  std::vector<std::string> places;           // files, and folders with their slash
  std::vector<std::string> launchers;        // scripts that do nothing but start what is in `places`
  std::vector<std::string> package_folders;  // beside site-packages; with their slashes
};

class StackTable {
 public:
  StackTable() : modules_(1), frames_(1), nodes_(1), stacks_(1) {}

  ModuleId intern(const Module& module);
  FrameId intern(const Frame& frame);
  StackId intern(const std::vector<FrameId>& stack);  // innermost first; empty is kEmptyStack

  [[nodiscard]] const Module& operator[](ModuleId id) const { return modules_.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] const Frame& operator[](FrameId id) const { return frames_.at(static_cast<std::size_t>(id)); }
  [[nodiscard]] std::vector<FrameId> operator[](StackId id) const;
  [[nodiscard]] std::size_t frame_count() const { return frames_.size(); }
  [[nodiscard]] std::size_t stack_count() const { return stacks_.size(); }

  // Names for native frames, innermost first: more than one where calls were inlined. Those become frames
  // of their own in every stack that holds the address. Ids stay valid; nothing is interned afterwards.
  void set_names(const std::map<FrameId, std::vector<CodeLine>>& names);

  void set_program_code(ProgramCode code) {
    program_code_ = std::move(code);
    blame_memo_ = {};
  }
  [[nodiscard]] const ProgramCode& program_code() const { return program_code_; }

  // What report/view/blame has found out so far; emptied when the answers may change.
  struct BlameMemo {
    std::vector<std::uint32_t> stacks;        // by StackId
    std::vector<std::uint8_t> frames;         // by FrameId
    std::vector<std::uint32_t> imports;       // by StackId
    std::vector<std::uint32_t> native_lines;  // by StackId
    std::vector<std::uint8_t> done_by;        // by StackId
  };
  [[nodiscard]] BlameMemo& blame_memo() const { return blame_memo_; }

 private:
  template <typename Id>
  using Ids = std::unordered_multimap<std::size_t, Id>;

  // Recordings of long programs have millions of stacks, most of which share their callers: a stack is the way from its
  // innermost call to the root of a tree.
  enum class Node : std::uint32_t {};
  static constexpr Node kRoot{0};
  struct Call {
    FrameId frame{};
    Node caller = kRoot;
    StackId stack = kEmptyStack;  // that ends here
  };
  [[nodiscard]] Call& call(Node node) { return nodes_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] const Call& call(Node node) const { return nodes_[static_cast<std::size_t>(node)]; }
  Node called_from(Node caller, FrameId frame);
  void grow_slots();
  [[nodiscard]] std::size_t slot_of(Node caller, FrameId frame) const;

  Ids<ModuleId> module_ids_;
  Ids<FrameId> frame_ids_;
  std::vector<Module> modules_;
  std::vector<Frame> frames_;
  std::vector<Call> nodes_;     // callers before what they call
  std::vector<Node> slots_;     // by hash of caller and frame, a power of 2; kRoot: free
  std::vector<Node> stacks_;    // by StackId
  std::vector<Node> last_way_;  // of the stack that was interned last, outermost first: the next one begins alike
  ProgramCode program_code_;
  mutable BlameMemo blame_memo_;
};

}  // namespace whyrss
