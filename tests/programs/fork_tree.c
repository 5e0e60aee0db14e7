// fork_tree JOB MIB WAIT_MS: a process fills so many MiB, "objects", and forks a tree that writes to them. Prints
// "NAME PID" of those that a test asks about; what each of them copies is known (tests/e2e/test_fork_trees.py). A job's
// writers begin WAIT_MS after they were forked; where it matters who is first, the second one waits for that, and the
// root ends last, however slow the machine is.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kPage = 4096, kStorm = 100 };

static char* g_objects;
static size_t g_size_bytes;
static long g_wait_ms;
static volatile int* g_root_has_written;  // shared

static void sleep_ms(long ms) {
  const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

// Quarters `from` to `to` of the objects.
static void write_quarters(size_t from, size_t to) {
  for (size_t at = from * g_size_bytes / 4; at < to * g_size_bytes / 4; at += kPage) ++g_objects[at];
}

static void write_as_root(size_t to) {
  sleep_ms(g_wait_ms);
  write_quarters(0, to);
  *g_root_has_written = 1;
}

static void wait_for_root(void) {
  while (!*g_root_has_written) sleep_ms(5);
}

static void say(const char* name) {
  printf("%s %d\n", name, getpid());
  fflush(stdout);
}

// Forks a process that does `work` and ends; returns its pid.
static pid_t begin(const char* name, void (*work)(void)) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  if (name != NULL) say(name);
  work();
  _exit(0);
}

static void wait_for_all(void) {
  while (wait(NULL) > 0) continue;
}

static void write_all(void) {
  sleep_ms(g_wait_ms);
  write_quarters(0, 4);
  sleep_ms(500);
}

static void write_all_late(void) {
  sleep_ms(400);
  write_all();
}

static void write_all_after_root(void) {
  wait_for_root();
  sleep_ms(400);
  write_all();
}

static void write_all_and_be_killed(void) {
  sleep_ms(g_wait_ms);
  write_quarters(0, 4);
  sleep_ms(150);
  kill(getpid(), SIGKILL);
}

static void write_first_quarter(void) {
  sleep_ms(g_wait_ms);
  write_quarters(0, 1);
  sleep_ms(900);
}

static void write_next_half(void) {
  sleep_ms(g_wait_ms);
  write_quarters(1, 3);
  sleep_ms(500);
}

static void write_last_half_late(void) {
  wait_for_root();
  sleep_ms(600);
  write_quarters(2, 4);
  sleep_ms(500);
}

static void run_another_program(void) {
  sleep_ms(g_wait_ms);
  execl("/bin/sleep", "sleep", "0.5", (char*)NULL);
}

static void outlast_root(void) {
  wait_for_root();
  sleep_ms(600);
}
static void end_at_once(void) { sleep_ms(2); }
static void end_soon(void) { sleep_ms(60); }

static void leave_a_writer(void) { begin("grandchild", write_all); }
static void leave_a_late_writer(void) { begin("grandchild", write_all_late); }
static void leave_a_writer_after_root(void) { begin("grandchild", write_all_after_root); }
static void leave_one_that_is_killed(void) { begin("grandchild", write_all_and_be_killed); }
static void leave_a_writer_and_be_killed(void) {
  begin("grandchild", write_all);
  sleep_ms(20);
  kill(getpid(), SIGKILL);
}
static void leave_one_four_deeper(void) {
  for (int depth = 0; depth < 4; ++depth) {
    if (fork() == 0) continue;
    sleep_ms(7 * depth);
    _exit(0);
  }
  say("grandchild");
  write_all();
}

// A process in the middle, which ends before the one that it forked.
static void fork_middle(void (*work)(void)) { waitpid(begin(NULL, work), NULL, 0); }

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const char* job = argv[1];
  g_size_bytes = (size_t)atol(argv[2]) << 20;
  g_wait_ms = atol(argv[3]);
  g_objects = mmap(NULL, g_size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  g_root_has_written = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int alive[2];  // open in each of its descendants
  if (pipe(alive) != 0) return 2;
  write_quarters(0, 4);
  say("root");
  sleep_ms(200);
  if (strcmp(job, "middle") == 0) fork_middle(leave_a_writer);
  if (strcmp(job, "middle-killed") == 0) fork_middle(leave_a_writer_and_be_killed);
  if (strcmp(job, "deep") == 0) fork_middle(leave_one_four_deeper);
  if (strcmp(job, "killed") == 0) fork_middle(leave_one_that_is_killed);
  if (strcmp(job, "both") == 0) {
    fork_middle(leave_a_writer_after_root);
    write_as_root(2);
  }
  if (strcmp(job, "root") == 0) {
    begin("child", outlast_root);
    write_as_root(2);
  }
  if (strcmp(job, "ages") == 0) {
    begin("old", write_first_quarter);
    sleep_ms(400);
    begin("young", write_next_half);
  }
  if (strcmp(job, "exec") == 0) {
    begin("runs", run_another_program);
    begin("writer", write_next_half);
  }
  if (strcmp(job, "storm") == 0) {
    begin("writer", write_all_late);
    for (int i = 0; i < kStorm; ++i) waitpid(begin(NULL, end_at_once), NULL, 0);
  }
  if (strcmp(job, "storm-middle") == 0) {
    fork_middle(leave_a_late_writer);
    for (int i = 0; i < kStorm; ++i) {
      begin(NULL, end_soon);
      sleep_ms(3);
    }
  }
  if (strcmp(job, "storm-root") == 0) {
    begin("writer", write_last_half_late);
    for (int i = 0; i < kStorm; ++i) {
      waitpid(begin(NULL, end_at_once), NULL, 0);
      if (i == kStorm / 2) write_as_root(1);
    }
  }
  wait_for_all();
  close(alive[1]);
  char nothing;
  while (read(alive[0], &nothing, 1) < 0) continue;  // those of whom it knows nothing: until the last one has ended
  return 0;
}
