/* Marks for a recording by whyrss. The functions are weak: in a program that runs without whyrss they
 * are NULL, so use the macros or test before calling. Any thread; nothing here blocks for long. */
#ifndef WHYRSS_H
#define WHYRSS_H

#ifdef __cplusplus
extern "C" {
#endif

/* A named phase of the program; phases may nest and overlap. */
void whyrss_phase_begin(const char* name) __attribute__((weak));
void whyrss_phase_end(const char* name) __attribute__((weak));
/* A moment worth naming. */
void whyrss_mark(const char* text) __attribute__((weak));
/* Has the pages of this process walked now, and waits for it: some ms, on a busy machine until 0.5 s after the
 * collector's last sign of life and 2 s at most. Asks the allocator for its own counters first: glibc takes up to 0.1 s
 * where it keeps hundreds of thousands of free blocks. */
void whyrss_snapshot(void) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#define WHYRSS_PHASE_BEGIN(name) (whyrss_phase_begin ? whyrss_phase_begin(name) : (void)0)
#define WHYRSS_PHASE_END(name) (whyrss_phase_end ? whyrss_phase_end(name) : (void)0)
#define WHYRSS_MARK(text) (whyrss_mark ? whyrss_mark(text) : (void)0)
#define WHYRSS_SNAPSHOT() (whyrss_snapshot ? whyrss_snapshot() : (void)0)

#endif
