/* Forty functions to look up; the build makes two libraries of it, with the two kinds of hash table. */
#define FUNCTION(tens, ones) \
  int function_##tens##ones(void) { return tens##ones; }
#define TEN_FUNCTIONS(tens) \
  FUNCTION(tens, 0)         \
  FUNCTION(tens, 1)         \
  FUNCTION(tens, 2)         \
  FUNCTION(tens, 3)         \
  FUNCTION(tens, 4)         \
  FUNCTION(tens, 5)         \
  FUNCTION(tens, 6)         \
  FUNCTION(tens, 7)         \
  FUNCTION(tens, 8)         \
  FUNCTION(tens, 9)
TEN_FUNCTIONS(1)
TEN_FUNCTIONS(2)
TEN_FUNCTIONS(3)
TEN_FUNCTIONS(4)
