// memcpy and its family for this library alone: the compiler calls them by name, and a program's own of that name would
// be called instead of libc's (libc_calls.cc says more). Simple ones: what is copied in the shim is small, or a
// compiler's own instructions copy it. Compiled with -fno-builtin, and with the optimisation off that would make a loop
// here a call of itself. Linked into libwhyrss.so, not into unit tests.
#include <emmintrin.h>

#include <cstddef>
#include <cstdint>

#ifndef __clang__
#pragma GCC optimize("no-tree-loop-distribute-patterns")
#endif

namespace {

constexpr std::size_t kSmall = 16;    // below: two overlapping words
constexpr std::size_t kLarge = 1024;  // from here on `rep movsb` starts up faster than it copies

template <class Word>
Word load(const char* from) noexcept {
  Word word;
  __builtin_memcpy(&word, from, sizeof(word));
  return word;
}

template <class Word>
void store(char* to, Word word) noexcept {
  __builtin_memcpy(to, &word, sizeof(word));
}

// `size` is one to two words; both are read before one is written.
template <class Word>
void copy_ends(char* to, const char* from, std::size_t size) noexcept {
  const Word first = load<Word>(from);
  const Word last = load<Word>(from + size - sizeof(Word));
  store(to, first);
  store(to + size - sizeof(Word), last);
}

// Less than kSmall bytes, which may overlap.
void copy_small(char* to, const char* from, std::size_t size) noexcept {
  if (size >= 8) return copy_ends<std::uint64_t>(to, from, size);
  if (size >= 4) return copy_ends<std::uint32_t>(to, from, size);
  if (size >= 2) return copy_ends<std::uint16_t>(to, from, size);
  if (size == 1) *to = *from;
}

__m128i load_vector(const char* from) noexcept { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
void store_vector(char* to, __m128i value) noexcept { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value); }

// From kSmall bytes on. The last vector is read first: the ranges may overlap where `to` lies lower.
void copy_up(char* to, const char* from, std::size_t size) noexcept {
  const __m128i last = load_vector(from + size - kSmall);
  for (std::size_t at = 0; at + kSmall < size; at += kSmall) store_vector(to + at, load_vector(from + at));
  store_vector(to + size - kSmall, last);
}

void copy_down(char* to, const char* from, std::size_t size) noexcept {
  const __m128i first = load_vector(from);
  for (std::size_t left = size; left > kSmall; left -= kSmall)
    store_vector(to + left - kSmall, load_vector(from + left - kSmall));
  store_vector(to, first);
}

}  // namespace

extern "C" {

[[gnu::used]] void* memcpy(void* to, const void* from, std::size_t size) {
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  if (size < kSmall) {
    copy_small(target, source, size);
  } else if (size < kLarge) {
    copy_up(target, source, size);
  } else {
    void* rest = to;
    __asm__ volatile("rep movsb" : "+D"(rest), "+S"(from), "+c"(size) : : "memory");
  }
  return to;
}

[[gnu::used]] void* memmove(void* to, const void* from, std::size_t size) {
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  if (size < kSmall)
    copy_small(target, source, size);
  else if (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from) < size)
    copy_down(target, source, size);
  else
    copy_up(target, source, size);
  return to;
}

[[gnu::used]] void* memset(void* to, int value, std::size_t size) {
  void* rest = to;
  __asm__ volatile("rep stosb" : "+D"(rest), "+c"(size) : "a"(value) : "memory");
  return to;
}

[[gnu::used]] int memcmp(const void* left, const void* right, std::size_t size) {
  const auto* a = static_cast<const unsigned char*>(left);
  const auto* b = static_cast<const unsigned char*>(right);
  for (std::size_t at = 0; at < size; ++at)
    if (a[at] != b[at]) return a[at] < b[at] ? -1 : 1;
  return 0;
}

[[gnu::used]] void* memchr(const void* text, int letter, std::size_t size) {
  const auto* at = static_cast<const char*>(text);
  const __m128i wanted = _mm_set1_epi8(static_cast<char>(letter));
  for (; size >= kSmall; size -= kSmall, at += kSmall) {
    const int found = _mm_movemask_epi8(_mm_cmpeq_epi8(load_vector(at), wanted));
    if (found != 0) return const_cast<char*>(at + __builtin_ctz(static_cast<unsigned>(found)));
  }
  for (; size > 0; --size, ++at)
    if (*at == static_cast<char>(letter)) return const_cast<char*>(at);
  return nullptr;
}

[[gnu::used]] std::size_t strlen(const char* text) {
  const char* end = text;
  while (*end != '\0') ++end;
  return static_cast<std::size_t>(end - text);
}

[[gnu::used]] std::size_t strnlen(const char* text, std::size_t limit) {
  std::size_t size = 0;
  while (size < limit && text[size] != '\0') ++size;
  return size;
}

[[gnu::used]] int strncmp(const char* left, const char* right, std::size_t limit) {
  for (; limit > 0; --limit, ++left, ++right) {
    const auto a = static_cast<unsigned char>(*left);
    const auto b = static_cast<unsigned char>(*right);
    if (a != b) return a < b ? -1 : 1;
    if (a == 0) return 0;
  }
  return 0;
}

[[gnu::used]] int strcmp(const char* left, const char* right) { return strncmp(left, right, SIZE_MAX); }

[[gnu::used]] char* strrchr(const char* text, int letter) {
  const char* found = nullptr;
  for (;; ++text) {
    if (*text == static_cast<char>(letter)) found = text;
    if (*text == '\0') return const_cast<char*>(found);
  }
}

[[gnu::used]] char* strstr(const char* text, const char* part) {
  const std::size_t size = strlen(part);
  for (;; ++text) {
    if (strncmp(text, part, size) == 0) return const_cast<char*>(text);
    if (*text == '\0') return nullptr;
  }
}
}
