// A library whose frame has FRAME_BYTES (from 128 on all have the same instructions): two of them at the same
// address need different unwind rules for the same return address.
__attribute__((visibility("default"))) void call_through_frame(void (*callback)(void*), void* argument) {
  char frame[FRAME_BYTES];
  __asm__ volatile("" : : "r"(frame) : "memory");
  callback(argument);
  __asm__ volatile("" : : "r"(frame) : "memory");
}
