#include "decode/image_tables.h"

#include <xxhash.h>

#include <algorithm>
#include <limits>

#include "decode/line_table.h"
#include "model/thread_starts.h"

namespace whyrss {
namespace {

using trace::PythonFrame;
using trace::RecordKind;

constexpr std::uint64_t kAnyTime = std::numeric_limits<std::uint64_t>::max();

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_own_library(std::string_view path) { return base_name(path).starts_with("libwhyrss.so"); }

std::vector<std::string> words_of(std::string_view command) {
  std::vector<std::string> words;
  while (!command.empty()) {
    const std::size_t end = std::min(command.find('\0'), command.size());
    words.emplace_back(command.substr(0, end));
    command.remove_prefix(std::min(end + 1, command.size()));
  }
  return words;
}

}  // namespace

void ImageTables::inherit(ImageTables& parent, std::uint64_t fork_ns) {
  for (const ImageTables* image = &parent; image != nullptr; image = image->parent_)
    if (image == this) return;  // a damaged recording
  parent_ = &parent;
  fork_ns_ = fork_ns;
  if (exe_.empty()) exe_ = parent.exe_;
  if (command_.empty()) command_ = parent.command_;
}

bool ImageTables::define(const EventRecord& record) {
  switch (record.kind) {
    case RecordKind::attach:
      return define_attach(record);
    case RecordKind::tables:
      return define_tables(record);
    case RecordKind::module:
      return define_module(record);
    case RecordKind::python:
      return define_python(record);
    case RecordKind::code:
      return define_code(record);
    default:
      return true;
  }
}

bool ImageTables::define_attach(const EventRecord& record) {
  ByteReader reader(record.bytes);
  if (!reader.take(attach_)) return false;
  exe_ = reader.take_text(attach_.exe_bytes);
  command_ = words_of(as_text(reader.take_bytes(attach_.command_bytes)));
  allocator_path_ = reader.take_text(attach_.allocator_path_bytes);
  return !reader.bad();
}

bool ImageTables::define_tables(const EventRecord& record) {
  ByteReader reader(record.bytes);
  trace::TablesRecord tables{};
  if (!reader.take(tables)) return false;
  tables_ = tables;
  return true;
}

// glibc maps its own memory where no hook sees it, and a program that brings its allocator along maps
// other things too: in both cases the caller's library says nothing.
bool ImageTables::serves_malloc(const std::string& path) const {
  return !path.empty() && path == allocator_path_ && path != exe_ && attach_.allocator != trace::Allocator::glibc;
}

bool ImageTables::define_module(const EventRecord& record) {
  ByteReader reader(record.bytes);
  trace::ModuleRecord module{};
  if (!reader.take(module)) return false;
  const std::string build_id = reader.take_text(module.build_id_bytes);
  const std::string path = reader.take_text(module.path_bytes);
  if (reader.bad() || module.start >= module.end) return false;
  modules_.push_back({.time_ns = record.time_ns,
                      .start = module.start,
                      .end = module.end,
                      .bias = module.bias,
                      .id = table_->intern(Module{path, build_id}),
                      .own = is_own_library(path),
                      .allocator = serves_malloc(path)});
  return true;
}

bool ImageTables::define_python(const EventRecord& record) {
  ByteReader reader(record.bytes);
  trace::PythonRecord python{};
  if (!reader.take(python)) return false;
  const std::string version = reader.take_text(python.version_bytes);
  if (reader.bad()) return false;
  python_ = python;
  python_version_ = version;
  return true;
}

bool ImageTables::define_code(const EventRecord& record) {
  ByteReader reader(record.bytes);
  trace::CodeRecord code{};
  if (!reader.take(code)) return false;
  const Bytes file = reader.take_bytes(code.file_bytes);
  const Bytes name = reader.take_bytes(code.name_bytes);
  const Bytes qualname = reader.take_bytes(code.qualname_bytes);
  const Bytes line_table = reader.take_bytes(code.line_table_bytes);
  if (reader.bad()) return false;
  codes_.try_emplace(
      code.code_id,
      Code{.time_ns = record.time_ns,
           .file = python_text(file, code.file_kind),
           .function = qualname.empty() ? python_text(name, code.name_kind) : python_text(qualname, code.qualname_kind),
           .first_line = static_cast<int>(std::min<std::uint32_t>(code.first_line, 1U << 30)),
           .line_table = line_table});
  return true;
}

const std::string& ImageTables::python_version() const {
  return python_version_.empty() && parent_ != nullptr ? parent_->python_version() : python_version_;
}

const trace::PythonRecord* ImageTables::python() const {
  for (const ImageTables* image = this; image != nullptr; image = image->parent_)
    if (image->python_.header.size_bytes != 0) return &image->python_;
  return nullptr;
}

// Of the records in this image's own files.
std::optional<ResolvedStack> ImageTables::find_own(std::uint32_t id, std::uint64_t until_ns) {
  std::optional<ResolvedStack> found;
  places_of_stacks_.visit_frames(id, [&](std::uint32_t frame) {
    const Bytes bytes = frame == kLooseStack ? input_->stream.loose_stack(id)
                                             : store_->read(input_->events, frame, id, attach_.header.time_ns);
    trace::RecordHeader header{};
    if (!ByteReader(bytes).take(header)) return false;
    if (header.time_ns <= until_ns) found = resolve_record(bytes);
    return true;
  });
  return found;
}

const ImageTables::Code* ImageTables::find_code(std::uint32_t id, std::uint64_t until_ns) const {
  for (const ImageTables* image = this; image != nullptr; image = image->parent_) {
    const auto found = image->codes_.find(id);
    if (found != image->codes_.end() && found->second.time_ns <= until_ns) return &found->second;
    until_ns = std::min(until_ns, image->fork_ns_);
  }
  return nullptr;
}

const ImageTables::LoadedModule* ImageTables::find_module(std::uint64_t address, std::uint64_t until_ns) const {
  // The last one that was loaded there: an address is used again after dlclose.
  for (const ImageTables* image = this; image != nullptr; image = image->parent_) {
    for (auto module = image->modules_.rbegin(); module != image->modules_.rend(); ++module)
      if (address >= module->start && address < module->end && module->time_ns <= until_ns) return &*module;
    until_ns = std::min(until_ns, image->fork_ns_);
  }
  return nullptr;
}

ImageTables::Place ImageTables::place_of(std::uint64_t address) const {
  Place place;
  std::uint64_t until_ns = kAnyTime;
  for (const ImageTables* image = this; image != nullptr; image = image->parent_) {
    for (const LoadedModule& module : image->modules_) {
      if (address < module.start || address >= module.end || module.time_ns > until_ns) continue;
      if (place.module != nullptr) return {};
      place.module = &module;
    }
    until_ns = std::min(until_ns, image->fork_ns_);
  }
  place.only = true;
  return place;
}

ImageTables::NativeFrame ImageTables::native_frame(std::uint64_t address, std::uint64_t time_ns) {
  const auto [known, is_new] = places_.try_emplace(address);
  if (is_new) known->second = place_of(address);
  if (known->second.only) return {.module = known->second.module, .address = address, .place = &known->second};
  // Module records may follow the stacks of the same moment, so the time limit is only for reuse.
  const LoadedModule* found = find_module(address, time_ns);
  return {.module = found != nullptr ? found : find_module(address, kAnyTime), .address = address, .place = nullptr};
}

FrameId ImageTables::frame_of(const NativeFrame& native) {
  if (native.place != nullptr && native.place->frame) return *native.place->frame;
  const std::uint64_t bias = native.module != nullptr ? native.module->bias : 0;
  const FrameId id = table_->intern(Frame{.kind = FrameKind::native,
                                          .function = {},
                                          .file = {},
                                          .line = 0,
                                          .module = native.module != nullptr ? native.module->id : kNoModule,
                                          .address = native.address - bias});
  if (native.place != nullptr) native.place->frame = id;
  return id;
}

ResolvedStack ImageTables::find(std::uint32_t stack_id) {
  std::uint64_t until_ns = kAnyTime;
  for (ImageTables* image = this; image != nullptr; image = image->parent_) {
    if (const auto found = image->find_own(stack_id, until_ns)) return *found;
    until_ns = std::min(until_ns, image->fork_ns_);
  }
  return {};
}

ResolvedStack ImageTables::resolve(std::uint32_t stack_id) {
  if (stack_id == trace::kNoStack) return {};
  const auto [known, is_new] = resolved_.try_emplace(stack_id);
  if (is_new) known->second = find(stack_id);
  return known->second;
}

bool ImageTables::is_interpreter(const NativeFrame& frame) const {
  const trace::PythonRecord* found = python();
  return found != nullptr && frame.address >= found->runtime_start && frame.address < found->runtime_end;
}

// Of the eval loop, where it is known.
bool ImageTables::is_eval(const NativeFrame& frame) const {
  const trace::PythonRecord* found = python();
  return found != nullptr && frame.address >= found->eval_start && frame.address < found->eval_end;
}

FrameId ImageTables::python_frame(const Code& code, std::uint32_t version_hex, std::int32_t last_instruction_bytes) {
  const auto [known, is_new] = code.frames.try_emplace(last_instruction_bytes);
  if (!is_new) return known->second;
  const PythonPosition at = python_position(version_hex, code.line_table, code.first_line, last_instruction_bytes);
  return known->second = table_->intern(Frame{.kind = FrameKind::python,
                                              .function = code.function,
                                              .file = code.file,
                                              .line = at.line,
                                              .end_line = at.end_line,
                                              .column = at.column,
                                              .end_column = at.end_column});
}

void ImageTables::push_python(const PythonFrames& frames, std::vector<FrameId>& out) {
  const trace::PythonRecord* found = python();
  const std::uint32_t version_hex = found != nullptr ? found->version_hex : 0;
  for (const PythonFrame& frame : frames) {
    if ((frame.flags & trace::PythonFrameFlags::incomplete) != 0) continue;
    const Code* code = find_code(frame.code_id, kAnyTime);
    out.push_back(code != nullptr ? python_frame(*code, version_hex, frame.last_instruction_bytes)
                                  : table_->intern(Frame{.kind = FrameKind::python, .function = {}, .file = {}}));
  }
}

// Of all that a record says of its stack. Differs from run to run, so that no recording can be forged in which
// two share one.
std::uint64_t ImageTables::hash_of(const trace::StackRecord& record, Bytes frames) {
  static const char somewhere = 0;
  const std::uint64_t shape = std::uint64_t{record.waiting_count} << 48 | std::uint64_t{record.flags} << 32 |
                              std::uint64_t{record.native_count} << 16 | record.python_count;
  const std::uint64_t hash =
      XXH3_64bits_withSeed(frames.data(), frames.size(), shape ^ reinterpret_cast<std::uint64_t>(&somewhere));
  return hash != 0 ? hash : 1;
}

// The same frames are the same stack, whatever its id and whenever it was described, unless other modules stood at
// their addresses at other times.
ResolvedStack ImageTables::resolve_record(Bytes bytes) {
  ByteReader reader(bytes);
  trace::StackRecord record{};
  if (!reader.take(record)) return {};
  const std::uint64_t hash = hash_of(record, reader.rest());
  if (const ResolvedStack* known = memo_.find(hash)) return *known;
  bool at_any_time = true;
  std::vector<NativeFrame> native(record.native_count);
  for (NativeFrame& frame : native) {
    std::uint64_t return_address = 0;
    reader.take(return_address);
    frame = native_frame(return_address - 1, record.header.time_ns);
    at_any_time = at_any_time && frame.place != nullptr;
  }
  PythonFrames python_frames(record.python_count);
  for (PythonFrame& frame : python_frames) reader.take(frame);
  PythonFrames waiting(record.waiting_count);
  for (PythonFrame& frame : waiting) reader.take(frame);

  std::vector<bool> evals(native.size());
  for (std::size_t i = 0; i < native.size(); ++i) evals[i] = is_eval(native[i]);
  const bool is_cut =
      native.size() >= trace::kMaxNativeFrames || (record.flags & trace::StackFlags::native_incomplete) != 0;
  const PlacedFrames placed = place_python_frames(evals, python_frames, is_cut);
  ResolvedStack result;
  std::vector<FrameId> frames;
  push_python(placed.before, frames);
  bool innermost = true;
  for (std::size_t i = 0; i < native.size(); ++i) {
    const NativeFrame& frame = native[i];
    const bool own = (frame.address >= attach_.own_start && frame.address < attach_.own_end) ||
                     (frame.module != nullptr && frame.module->own);
    if (own) continue;
    if (innermost) result.from_allocator = frame.module != nullptr && frame.module->allocator;
    innermost = false;
    if (!placed.instead[i].empty()) {
      push_python(placed.instead[i], frames);
      continue;
    }
    if (record.python_count > 0 && is_interpreter(frame)) continue;
    frames.push_back(frame_of(frame));
  }
  push_python(placed.after, frames);
  if (!waiting.empty()) {
    frames.push_back(waiter_frame(*table_));
    push_python(waiting, frames);
  }
  result.id = table_->intern(frames);
  if (at_any_time) memo_.keep(hash, result);
  return result;
}

}  // namespace whyrss
