// What one program image (from exec or fork to the next) calls by number: stacks, code objects,
// modules. Turns a stack id into a stack of code lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/event_stream.h"
#include "decode/frame_placing.h"
#include "decode/process_input.h"
#include "decode/stack_memo.h"
#include "decode/stack_places.h"
#include "decode/stack_store.h"
#include "model/stack_table.h"
#include "shim/trace/trace_format.h"

namespace whyrss {

// Everything is defined, here and in the parents, before the first stack is asked for.
class ImageTables {
 public:
  // All outlive this; `input` is the process's.
  ImageTables(StackTable& table, StackStore& store, const ProcessInput& input)
      : table_(&table), store_(&store), input_(&input) {}

  // A fork child refers to its ancestor's tables as they were at the fork. `parent` must outlive this.
  void inherit(ImageTables& parent, std::uint64_t fork_ns);

  // Takes in an attach, tables, module, python or code record. False when it is damaged.
  bool define(const EventRecord& record);
  // Where stack records of this image are.
  void define_stacks(const StackRun& run) { places_of_stacks_.add(run); }
  // All are defined.
  void end_definitions() { places_of_stacks_.sort(); }

  // The empty stack when no record defined `stack_id`. What was asked for once is kept.
  ResolvedStack resolve(std::uint32_t stack_id);
  // The same for a caller that keeps the result.
  StackId resolve_once(std::uint32_t stack_id) { return find(stack_id).id; }
  // The process has ended: what speeds up the resolving of many stacks is given back.
  void release() {
    memo_ = {};
    places_ = {};
  }

  [[nodiscard]] bool attached() const { return attach_.header.size_bytes != 0; }
  [[nodiscard]] const trace::AttachRecord& attach() const { return attach_; }
  // Whose tables these are and were; nothing in recordings of shims that described everything again.
  [[nodiscard]] const std::optional<trace::TablesRecord>& tables() const { return tables_; }
  [[nodiscard]] const std::string& exe() const { return exe_; }
  [[nodiscard]] const std::vector<std::string>& command() const { return command_; }
  [[nodiscard]] const std::string& python_version() const;  // "" without one

 private:
  struct LoadedModule {
    std::uint64_t time_ns, start, end, bias;
    ModuleId id;
    bool own, allocator;
  };
  struct Code {
    std::uint64_t time_ns = 0;
    std::string file, function;
    int first_line = 0;
    Bytes line_table;
    mutable std::unordered_map<std::int32_t, FrameId> frames{};  // by last instruction: as far as they were asked for
  };
  // What is known of a code address. Most belong to one module for the whole life of the image.
  struct Place {
    const LoadedModule* module = nullptr;
    bool only = false;               // no other module was ever there
    std::optional<FrameId> frame{};  // of that module, once it was asked for
  };
  struct NativeFrame {
    const LoadedModule* module;
    std::uint64_t address;  // of the call: return address - 1
    Place* place;           // nullptr where several modules were there
  };

  [[nodiscard]] bool serves_malloc(const std::string& path) const;
  bool define_attach(const EventRecord& record);
  bool define_tables(const EventRecord& record);
  bool define_module(const EventRecord& record);
  bool define_python(const EventRecord& record);
  bool define_code(const EventRecord& record);

  ResolvedStack find(std::uint32_t stack_id);
  [[nodiscard]] std::optional<ResolvedStack> find_own(std::uint32_t id, std::uint64_t until_ns);
  [[nodiscard]] const Code* find_code(std::uint32_t id, std::uint64_t until_ns) const;
  [[nodiscard]] const LoadedModule* find_module(std::uint64_t address, std::uint64_t until_ns) const;
  [[nodiscard]] Place place_of(std::uint64_t address) const;
  // Of a stack of that time.
  NativeFrame native_frame(std::uint64_t address, std::uint64_t time_ns);
  FrameId frame_of(const NativeFrame& native);
  [[nodiscard]] const trace::PythonRecord* python() const;

  [[nodiscard]] static std::uint64_t hash_of(const trace::StackRecord& record, Bytes frames);
  ResolvedStack resolve_record(Bytes bytes);
  void push_python(const PythonFrames& frames, std::vector<FrameId>& out);
  FrameId python_frame(const Code& code, std::uint32_t version_hex, std::int32_t last_instruction_bytes);
  [[nodiscard]] bool is_interpreter(const NativeFrame& frame) const;
  [[nodiscard]] bool is_eval(const NativeFrame& frame) const;

  StackTable* table_;
  StackStore* store_;
  const ProcessInput* input_;
  ImageTables* parent_ = nullptr;
  std::uint64_t fork_ns_ = 0;
  trace::AttachRecord attach_{};
  std::optional<trace::TablesRecord> tables_;
  std::string exe_, allocator_path_;
  std::vector<std::string> command_;
  trace::PythonRecord python_{};
  std::string python_version_;
  std::vector<LoadedModule> modules_;
  std::unordered_map<std::uint64_t, Place> places_;  // by address
  std::unordered_map<std::uint32_t, Code> codes_;
  StackPlaces places_of_stacks_;
  StackMemo memo_;
  std::unordered_map<std::uint32_t, ResolvedStack> resolved_;  // by id: as far as resolve() was asked for them
};

}  // namespace whyrss
