#include "shim/stacks/unwind_rules.h"

#include <link.h>
#include <sys/syscall.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cstring>

#include "shim/sys/loaded_images.h"
#include "shim/sys/raw_io.h"

namespace whyrss::shim {
namespace {

using FindObject = int (*)(void*, dl_find_object*);
constinit FindObject g_find_object = nullptr;

// DWARF register numbers of x86-64.
constexpr std::uint64_t kRbp = 6, kRsp = 7, kReturnAddress = 16;

// DW_EH_PE pointer encodings (LSB).
constexpr std::uint8_t kEncodingMask = 0x0f, kRelationMask = 0x70, kIndirect = 0x80, kOmitted = 0xff;
constexpr std::uint8_t kPcRelative = 0x10;
constexpr std::uint8_t kSortedTable = 0x3b;  // relative to the header, 4 bytes signed

// Reads an entry of the table. The tables are mapped and were written by a linker; `failed` catches
// what we do not know rather than hostile input.
class Reader {
 public:
  Reader(const std::uint8_t* at, const std::uint8_t* end) : at_(at), end_(end) {}

  [[nodiscard]] bool more() const { return at_ < end_ && !failed_; }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] const std::uint8_t* at() const { return at_; }
  void fail() { failed_ = true; }
  void skip(std::uint64_t count) {
    if (count > static_cast<std::uint64_t>(end_ - at_)) return fail();
    at_ += count;
  }

  template <class Type>
  Type fixed() {
    Type value{};
    if (static_cast<std::uint64_t>(end_ - at_) < sizeof(Type)) {
      fail();
      return value;
    }
    std::memcpy(&value, at_, sizeof(Type));
    at_ += sizeof(Type);
    return value;
  }

  std::uint64_t uleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    fail();
    return 0;
  }

  std::int64_t sleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) != 0) continue;
      if ((byte & 0x40) != 0 && shift + 7 < 64) value |= ~std::uint64_t{0} << (shift + 7);
      return static_cast<std::int64_t>(value);
    }
    fail();
    return 0;
  }

  // A code address in one of the encodings that compilers use for them.
  std::uint64_t pointer(std::uint8_t encoding) {
    const auto base = reinterpret_cast<std::uint64_t>(at_);
    std::uint64_t value = 0;
    switch (encoding & kEncodingMask) {
      case 0x00:
      case 0x04:
      case 0x0c:
        value = fixed<std::uint64_t>();
        break;
      case 0x03:
        value = fixed<std::uint32_t>();
        break;
      case 0x0b:
        value = static_cast<std::uint64_t>(std::int64_t{fixed<std::int32_t>()});
        break;
      default:
        fail();
    }
    const std::uint8_t relation = encoding & kRelationMask;
    if ((encoding & kIndirect) != 0 || (relation != 0 && relation != kPcRelative)) fail();
    return relation == kPcRelative ? base + value : value;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
  bool failed_ = false;
};

// What is needed of a CIE.
struct CommonInfo {
  std::uint64_t code_alignment = 1;
  std::int64_t data_alignment = 1;
  std::uint8_t pointer_encoding = 0;
  bool has_augmentation = false;
  bool signal_frame = false;
  bool usable = false;
  const std::uint8_t* instructions = nullptr;
  const std::uint8_t* end = nullptr;
};

// An entry (CIE or FDE) begins with its length; a reader of what follows, at most 4 GiB.
Reader entry_reader(const std::uint8_t* entry) {
  std::uint32_t length = 0;
  std::memcpy(&length, entry, sizeof length);
  if (length == 0xffffffff) return {entry, entry};  // 64-bit entries: not written for .eh_frame
  return {entry + 4, entry + 4 + length};
}

CommonInfo parse_common(const std::uint8_t* entry) {
  CommonInfo info;
  Reader reader = entry_reader(entry);
  const Reader whole = reader;
  reader.fixed<std::uint32_t>();  // id, 0
  const auto version = reader.fixed<std::uint8_t>();
  if (version != 1 && version != 3) return info;
  const char* augmentation = reinterpret_cast<const char*>(reader.at());
  reader.skip(std::strlen(augmentation) + 1);
  info.code_alignment = reader.uleb();
  info.data_alignment = reader.sleb();
  const std::uint64_t return_register = version == 1 ? reader.fixed<std::uint8_t>() : reader.uleb();
  if (return_register != kReturnAddress) return info;
  if (*augmentation == 'z') {
    info.has_augmentation = true;
    const std::uint64_t length = reader.uleb();
    const std::uint8_t* after = reader.at() + length;
    for (const char* letter = augmentation + 1; *letter != 0; ++letter) {
      if (*letter == 'R') {
        info.pointer_encoding = reader.fixed<std::uint8_t>();
      } else if (*letter == 'P') {
        const auto encoding = reader.fixed<std::uint8_t>();
        reader.pointer(encoding & static_cast<std::uint8_t>(~(kIndirect | kRelationMask)));
      } else if (*letter == 'L') {
        reader.fixed<std::uint8_t>();
      } else if (*letter == 'S') {
        info.signal_frame = true;
      } else {
        break;  // unknown letters end the known part
      }
    }
    info.instructions = after;
  } else if (*augmentation == 0) {
    info.instructions = reader.at();
  } else {
    return info;
  }
  Reader rest = whole;
  rest.skip(static_cast<std::uint64_t>(info.instructions - rest.at()));
  if (rest.failed() || reader.failed()) return info;
  // The entry's end, for the instruction reader.
  std::uint32_t length = 0;
  std::memcpy(&length, entry, sizeof length);
  info.end = entry + 4 + length;
  info.usable = true;
  return info;
}

enum class Saved : std::uint8_t { same, at_offset, at_rbp, undefined, other };

struct Register {
  Saved how = Saved::same;
  std::int64_t offset = 0;
};

// One row of the virtual unwind table, for the three registers that matter.
struct Row {
  std::uint64_t cfa_register = kRsp;
  std::int64_t cfa_offset = 0;
  const std::uint8_t* cfa_expression = nullptr;
  std::uint64_t expression_bytes = 0;
  Register rbp, return_address;
};

class Interpreter {
 public:
  Interpreter(const CommonInfo& info, std::uint64_t start, std::uint64_t pc) : info_(info), location_(start), pc_(pc) {}

  // Runs until the row at pc. False: something we do not know.
  bool run(const std::uint8_t* from, const std::uint8_t* to) {
    Reader reader(from, to);
    while (reader.more() && !past_) step(reader);
    return !reader.failed();
  }
  void keep_initial() { initial_ = row_; }
  [[nodiscard]] const Row& row() const { return row_; }

 private:
  void advance(std::uint64_t delta) {
    if (location_ + delta * info_.code_alignment > pc_)
      past_ = true;
    else
      location_ += delta * info_.code_alignment;
  }

  Register* interesting(std::uint64_t number) {
    if (number == kRbp) return &row_.rbp;
    return number == kReturnAddress ? &row_.return_address : nullptr;
  }
  void set(std::uint64_t number, Saved how, std::int64_t offset = 0) {
    if (Register* known = interesting(number)) *known = {.how = how, .offset = offset};
  }
  void restore(std::uint64_t number) {
    if (number == kRbp) row_.rbp = initial_.rbp;
    if (number == kReturnAddress) row_.return_address = initial_.return_address;
  }
  void define_cfa(std::uint64_t number, std::int64_t offset) {
    row_.cfa_register = number;
    row_.cfa_offset = offset;
    row_.cfa_expression = nullptr;
  }

  void step(Reader& reader) {
    const auto code = reader.fixed<std::uint8_t>();
    const std::uint8_t operand = code & 0x3f;
    switch (code & 0xc0) {
      case 0x40:
        return advance(operand);
      case 0x80:
        return set(operand, Saved::at_offset, static_cast<std::int64_t>(reader.uleb()) * info_.data_alignment);
      case 0xc0:
        return restore(operand);
      default:
        return step_extended(operand, reader);
    }
  }

  void step_extended(std::uint8_t code, Reader& reader) {
    switch (code) {
      case 0x00:  // nop
        return;
      case 0x01:  // set_loc
        return set_location(reader.pointer(info_.pointer_encoding));
      case 0x02:
        return advance(reader.fixed<std::uint8_t>());
      case 0x03:
        return advance(reader.fixed<std::uint16_t>());
      case 0x04:
        return advance(reader.fixed<std::uint32_t>());
      case 0x0a:  // remember_state
        if (depth_ == remembered_.size()) return reader.fail();
        remembered_[depth_++] = row_;
        return;
      case 0x0b:  // restore_state
        if (depth_ == 0) return reader.fail();
        row_ = remembered_[--depth_];
        return;
      case 0x0c:  // def_cfa
      case 0x12:  // def_cfa_sf
      {
        const std::uint64_t number = reader.uleb();
        return define_cfa(
            number, code == 0x0c ? static_cast<std::int64_t>(reader.uleb()) : reader.sleb() * info_.data_alignment);
      }
      case 0x0d:  // def_cfa_register
        return define_cfa(reader.uleb(), row_.cfa_offset);
      case 0x0e:  // def_cfa_offset
        return define_cfa(row_.cfa_register, static_cast<std::int64_t>(reader.uleb()));
      case 0x13:  // def_cfa_offset_sf
        return define_cfa(row_.cfa_register, reader.sleb() * info_.data_alignment);
      case 0x0f:  // def_cfa_expression
        row_.expression_bytes = reader.uleb();
        row_.cfa_expression = reader.at();
        return reader.skip(row_.expression_bytes);
      case 0x2e:  // GNU_args_size
        reader.uleb();
        return;
      default:
        return step_register(code, reader);
    }
  }

  void step_register(std::uint8_t code, Reader& reader) {
    const std::uint64_t number = reader.uleb();
    switch (code) {
      case 0x05:  // offset_extended
        return set(number, Saved::at_offset, static_cast<std::int64_t>(reader.uleb()) * info_.data_alignment);
      case 0x11:  // offset_extended_sf
        return set(number, Saved::at_offset, reader.sleb() * info_.data_alignment);
      case 0x2f:  // GNU_negative_offset_extended
        return set(number, Saved::at_offset, -static_cast<std::int64_t>(reader.uleb()) * info_.data_alignment);
      case 0x06:  // restore_extended
        return restore(number);
      case 0x07:
        return set(number, Saved::undefined);
      case 0x08:
        return set(number, Saved::same);
      case 0x09:  // register
        reader.uleb();
        return set(number, Saved::other);
      case 0x14:  // val_offset
        reader.uleb();
        return set(number, Saved::other);
      case 0x15:  // val_offset_sf
        reader.sleb();
        return set(number, Saved::other);
      case 0x10:  // expression
      {
        const std::uint64_t bytes = reader.uleb();
        const std::uint8_t* expression = reader.at();
        reader.skip(bytes);
        if (reader.failed()) return;
        // breg6 0: saved where RBP points to, as in frames that realign the stack.
        return set(number, bytes == 2 && expression[0] == 0x76 && expression[1] == 0 ? Saved::at_rbp : Saved::other);
      }
      case 0x16:  // val_expression
        reader.skip(reader.uleb());
        return set(number, Saved::other);
      default:
        return reader.fail();
    }
  }

  void set_location(std::uint64_t location) {
    if (location > pc_)
      past_ = true;
    else
      location_ = location;
  }

  CommonInfo info_;
  std::uint64_t location_, pc_;
  bool past_ = false;
  Row row_, initial_;
  std::array<Row, 8> remembered_;
  std::size_t depth_ = 0;
};

constexpr UnwindRule kComplex{.kind = RuleKind::complex};

// The CFA expressions that exist in practice: linkers' for PLT stubs, and [register + offset] + addend
// of compilers (realigned stacks) and hand-written assembly.
UnwindRule rule_of_expression(const Row& row, std::uint64_t pc) {
  constexpr std::uint8_t kBreg0 = 0x70, kDeref = 0x06, kPlusConstant = 0x23;
  // breg7 8; breg16 0; lit15; and; litN; ge; lit3; shl; plus
  constexpr std::array<std::uint8_t, 7> kPltTail{0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};
  Reader reader(row.cfa_expression, row.cfa_expression + row.expression_bytes);
  const auto base = reader.fixed<std::uint8_t>();
  if (base != kBreg0 + kRsp && base != kBreg0 + kRbp) return kComplex;
  const std::int64_t offset = reader.sleb();
  const auto next = reader.fixed<std::uint8_t>();
  if (next == kBreg0 + kReturnAddress && base == kBreg0 + kRsp) {
    if (reader.sleb() != 0 || reader.failed() || row.expression_bytes != 4 + kPltTail.size()) return kComplex;
    std::array<std::uint8_t, 7> tail{};
    std::memcpy(tail.data(), reader.at(), tail.size());
    const unsigned threshold = tail[2] - 0x30U;  // litN: where in the stub the push is done
    tail[2] = kPltTail[2];
    if (tail != kPltTail || threshold > 15) return kComplex;
    const std::int64_t pushed = (pc & 15) >= threshold ? 8 : 0;
    return {.kind = RuleKind::cfa_rsp, .offset = static_cast<std::int32_t>(offset + pushed)};
  }
  if (next != kDeref) return kComplex;
  std::uint64_t addend = 0;
  if (reader.more()) {
    if (reader.fixed<std::uint8_t>() != kPlusConstant) return kComplex;
    addend = reader.uleb();
  }
  if (reader.more() || reader.failed() || addend > 127) return kComplex;
  return {.kind = base == kBreg0 + kRsp ? RuleKind::deref_rsp : RuleKind::deref_rbp,
          .addend = static_cast<std::int8_t>(addend),
          .offset = static_cast<std::int32_t>(offset)};
}

UnwindRule rule_of_row(const Row& row, std::uint64_t pc) {
  if (row.return_address.how == Saved::undefined) return {.kind = RuleKind::end};
  if (row.return_address.how != Saved::at_offset || row.return_address.offset != -8) return kComplex;
  UnwindRule rule;
  if (row.cfa_expression != nullptr) {
    rule = rule_of_expression(row, pc);
  } else {
    if (row.cfa_register != kRsp && row.cfa_register != kRbp) return kComplex;
    if (row.cfa_offset != static_cast<std::int32_t>(row.cfa_offset)) return kComplex;
    rule.kind = row.cfa_register == kRsp ? RuleKind::cfa_rsp : RuleKind::cfa_rbp;
    rule.offset = static_cast<std::int32_t>(row.cfa_offset);
  }
  if (row.rbp.how == Saved::at_offset) {
    if (row.rbp.offset != static_cast<std::int16_t>(row.rbp.offset) || row.rbp.offset == 0) return kComplex;
    rule.rbp_offset = static_cast<std::int16_t>(row.rbp.offset);
  } else if (row.rbp.how == Saved::at_rbp) {
    rule.rbp_offset = kRbpAtItself;
  } else if (row.rbp.how == Saved::other) {
    return kComplex;
  }
  return rule;
}

// The FDE whose range holds pc, by the sorted table of .eh_frame_hdr; nullptr when there is none.
const std::uint8_t* find_entry(const std::uint8_t* header, std::uint64_t pc) {
  if (header == nullptr || header[0] != 1 || header[2] == kOmitted || header[3] != kSortedTable) return nullptr;
  Reader reader(header + 4, header + 64);
  reader.pointer(header[1]);
  const std::uint64_t count = reader.pointer(header[2]);
  if (reader.failed() || count == 0) return nullptr;
  struct SearchRow {
    std::int32_t start, entry;  // relative to the header
  };
  const std::uint8_t* rows = reader.at();
  const auto row_at = [rows](std::uint64_t index) {
    SearchRow row{};
    std::memcpy(&row, rows + index * sizeof(SearchRow), sizeof row);
    return row;
  };
  const auto target = static_cast<std::int64_t>(pc - reinterpret_cast<std::uint64_t>(header));
  std::uint64_t low = 0;
  std::uint64_t high = count;  // first row whose start is above the target
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (row_at(middle).start <= target)
      low = middle + 1;
    else
      high = middle;
  }
  return low == 0 ? nullptr : header + row_at(low - 1).entry;
}

constinit std::atomic<std::uint32_t> g_holds{0}, g_removals{0};

// Not below 0: a child of a fork began anew.
void decrease(std::atomic<std::uint32_t>& count) noexcept {
  std::uint32_t now = count.load(std::memory_order_relaxed);
  while (now != 0 && !count.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel)) {
  }
}

}  // namespace

void start_unwind_rules() noexcept { set_found(g_find_object, find_in_libc("_dl_find_object")); }

bool is_image_known_by_libc() noexcept {
  if (g_find_object == nullptr) start_unwind_rules();
  return g_find_object != nullptr;
}

CodeHold::CodeHold() noexcept {
  g_holds.fetch_add(1, std::memory_order_seq_cst);
  holds_ = g_removals.load(std::memory_order_seq_cst) == 0;
}

CodeHold::~CodeHold() { decrease(g_holds); }

void begin_rule_removal() noexcept {
  g_removals.fetch_add(1, std::memory_order_seq_cst);
  constexpr int kMostWaits = 100;
  constexpr timespec kWait{0, 100'000};
  for (int i = 0; i < kMostWaits && g_holds.load(std::memory_order_seq_cst) != 0; ++i)
    own_syscall(SYS_nanosleep, as_long(&kWait), 0);
}

void end_rule_removal() noexcept { decrease(g_removals); }

void unwind_rules_after_fork_in_child() noexcept {
  g_holds.store(0, std::memory_order_relaxed);
  g_removals.store(0, std::memory_order_relaxed);
}

LoadedImage find_image(std::uint64_t address) noexcept {
  if (g_find_object == nullptr) return find_listed_image(address);
  dl_find_object found{};
  if (g_find_object(reinterpret_cast<void*>(address), &found) != 0) return {};
  return {.start = reinterpret_cast<std::uint64_t>(found.dlfo_map_start),
          .end = reinterpret_cast<std::uint64_t>(found.dlfo_map_end),
          .bias = found.dlfo_link_map->l_addr,
          .path = found.dlfo_link_map->l_name,
          .frame_table = static_cast<const std::uint8_t*>(found.dlfo_eh_frame),
          .dynamic = found.dlfo_link_map->l_ld};
}

UnwindRule find_unwind_rule(std::uint64_t pc) noexcept {
  const LoadedImage image = find_image(pc);
  const std::uint8_t* entry = find_entry(image.frame_table, pc);
  if (entry == nullptr) return kComplex;
  Reader reader = entry_reader(entry);
  const std::uint8_t* id_place = reader.at();
  const auto distance = reader.fixed<std::uint32_t>();
  if (distance == 0 || reader.failed()) return kComplex;
  const CommonInfo info = parse_common(id_place - distance);
  if (!info.usable) return kComplex;
  const std::uint64_t start = reader.pointer(info.pointer_encoding);
  const std::uint64_t size = reader.pointer(info.pointer_encoding & kEncodingMask);
  if (reader.failed() || pc < start || pc - start >= size) return kComplex;
  if (info.signal_frame) {
    // glibc's __restore_rt: mov $15 (rt_sigreturn), %rax; syscall. Its entry begins a byte before, so that a call
    // before it is inside; RSP is the same at both instructions.
    constexpr std::array<std::uint8_t, 9> kSigreturn{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    const auto* code = reinterpret_cast<const std::uint8_t*>(start + 1);
    return size > kSigreturn.size() && std::memcmp(code, kSigreturn.data(), kSigreturn.size()) == 0
               ? UnwindRule{.kind = RuleKind::signal_frame}
               : kComplex;
  }
  if (info.has_augmentation) reader.skip(reader.uleb());
  std::uint32_t length = 0;
  std::memcpy(&length, entry, sizeof length);
  Interpreter interpreter(info, start, pc);
  if (!interpreter.run(info.instructions, info.end)) return kComplex;
  interpreter.keep_initial();
  if (reader.failed() || !interpreter.run(reader.at(), entry + 4 + length)) return kComplex;
  return rule_of_row(interpreter.row(), pc);
}

}  // namespace whyrss::shim
