// Faults on 64 MiB page by page and gives them back, 40 times: 655,360 page faults and little else.
// With an argument, PERIOD: under an event of its own that traps at each PERIODth fault and does nothing, which is what
// the kernel takes for any sampling of page faults.
#include <linux/perf_event.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void ignore(int number) { (void)number; }

static int open_event(const char* period) {
  struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
  struct perf_event_attr event = {.size = sizeof event,
                                  .type = PERF_TYPE_SOFTWARE,
                                  .config = PERF_COUNT_SW_PAGE_FAULTS,
                                  .sample_period = strtoul(period, NULL, 10),
                                  .sample_type = PERF_SAMPLE_ADDR,
                                  .exclude_kernel = 1,
                                  .exclude_hv = 1,
                                  .remove_on_exec = 1,
                                  .sigtrap = 1};
  return sigaction(SIGTRAP, &action, NULL) == 0 && syscall(SYS_perf_event_open, &event, 0, -1, -1, 0) >= 0;
}

int main(int argc, char** argv) {
  if (argc > 1 && !open_event(argv[1])) return 1;
  const size_t size = 64 << 20;
  char* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  madvise(memory, size, MADV_NOHUGEPAGE);
  for (int round = 0; round < 40; ++round) {
    for (size_t at = 0; at < size; at += 4096) memory[at] = 1;
    madvise(memory, size, MADV_DONTNEED);
  }
}
