#include "support/printable.h"

namespace whyrss {
namespace {

// Of a multi-byte character: how long it is, and what its second byte may be (RFC 3629, section 4: neither overlong
// forms, nor surrogates, nor above U+10FFFF). C2 80 to C2 9F are control characters.
struct Sequence {
  std::size_t length = 0;  // 0: no character begins so
  unsigned char first = 0x80, last = 0xbf;
};

Sequence sequence_of(unsigned char lead) {
  if (lead == 0xc2) return {.length = 2, .first = 0xa0};
  if (lead > 0xc2 && lead < 0xe0) return {.length = 2};
  if (lead == 0xe0) return {.length = 3, .first = 0xa0};
  if (lead == 0xed) return {.length = 3, .last = 0x9f};
  if (lead > 0xe0 && lead < 0xf0) return {.length = 3};
  if (lead == 0xf0) return {.length = 4, .first = 0x90};
  if (lead == 0xf4) return {.length = 4, .last = 0x8f};
  return lead > 0xf0 && lead < 0xf4 ? Sequence{.length = 4} : Sequence{};
}

// Bytes of the printable character that `text` begins with; 0: it begins with none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  const Sequence sequence = sequence_of(byte(0));
  if (sequence.length == 0 || sequence.length > text.size()) return 0;
  if (byte(1) < sequence.first || byte(1) > sequence.last) return 0;
  for (std::size_t i = 2; i < sequence.length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return sequence.length;
}

// Characters that show nothing, or turn round what is beside them: U+061C, U+200B to U+200F, U+2028 to U+202E, U+2060
// to U+206F, U+FEFF (Unicode Standard Annex 9, and the category Cf).
bool is_hidden(std::string_view character) {
  const auto between = [&](std::string_view first, std::string_view last) {
    return character >= first && character <= last;
  };
  return character == "\xd8\x9c" || between("\xe2\x80\x8b", "\xe2\x80\x8f") ||
         between("\xe2\x80\xa8", "\xe2\x80\xae") || between("\xe2\x81\xa0", "\xe2\x81\xaf") ||
         character == "\xef\xbb\xbf";
}

std::string base_name_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

// "python3.11", "python", "pypy3": what runs the script that its command names.
bool is_interpreter(const std::string& program) { return program.starts_with("py"); }

}  // namespace

std::string printable(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const std::size_t length = character_bytes(text);
    if (length > 0 && !is_hidden(text.substr(0, length)))
      clean += text.substr(0, length);
    else
      clean += '?';
    text.remove_prefix(length > 0 ? length : 1);
  }
  return clean;
}

std::string label_value(std::string_view text) {
  std::string escaped;
  for (const char byte : printable(text)) {
    if (byte == '\\' || byte == '"') escaped += '\\';
    escaped += byte;
  }
  return escaped;
}

std::string program_name(const std::vector<std::string>& command, const std::string& program) {
  std::string name = base_name_of(command.empty() ? program : command.front());
  if (is_interpreter(name) && command.size() > 1 && !command[1].starts_with('-')) name = base_name_of(command[1]);
  return name.empty() ? "?" : printable(name);
}

}  // namespace whyrss
