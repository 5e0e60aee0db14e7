// Which line of a stack is named: the program's own, whatever lies inside of it.
#include "report/view/blame.h"

#include <gtest/gtest.h>

#include "attribute/program_code.h"
#include "literal_accounts.h"
#include "model/python_path.h"
#include "model/thread_starts.h"
#include "report/view/line_text.h"
#include "report/view/native_code.h"

namespace whyrss::blame_test {
namespace {

// A Python frame as "file function".
using Lines = std::vector<std::pair<std::string, std::string>>;

StackId python_frames(StackTable& stacks, const Lines& lines) {
  std::vector<FrameId> ids;
  for (const auto& [file, function] : lines)
    ids.push_back(stacks.intern(Frame{.kind = FrameKind::python, .function = function, .file = file, .line = 1}));
  return stacks.intern(ids);
}

// The blamed line of the first stack of a recording that has all of these.
std::string blamed(const std::vector<Lines>& all) {
  StackTable stacks;
  std::vector<StackId> ids;
  for (const Lines& lines : all) ids.push_back(python_frames(stacks, lines));
  stacks.set_program_code(find_program_code(stacks));
  const Frame* frame = blamed_frame(stacks, ids.front());
  return frame == nullptr ? "" : frame->file + " " + frame->function;
}

constexpr const char* kSite = "/home/u/venv/lib/python3.11/site-packages/";

std::string in_site(const std::string& file) { return kSite + file; }

TEST(PythonPath, WhoseCodeItIs) {
  EXPECT_EQ(python_origin("/home/u/job.py"), PythonOrigin::user);
  EXPECT_EQ(python_origin("/home/u/lib/pythonic/a.py"), PythonOrigin::user);
  EXPECT_EQ(python_origin("/home/u/lib/python3/a.py"), PythonOrigin::user);
  EXPECT_EQ(python_origin("/usr/lib64/python3.9/json/decoder.py"), PythonOrigin::standard_library);
  EXPECT_EQ(python_origin("/opt/py/lib/python3.13t/json/decoder.py"), PythonOrigin::standard_library);
  EXPECT_EQ(python_origin("/usr/lib/python3/dist-packages/apt/cache.py"), PythonOrigin::package);
  EXPECT_EQ(python_origin(in_site("numpy/x.py")), PythonOrigin::package);
  EXPECT_EQ(python_origin("<frozen os>"), PythonOrigin::frozen);
  EXPECT_EQ(python_origin("<attrs generated init a.B>"), PythonOrigin::generated);
  EXPECT_EQ(python_origin("<stdin>"), PythonOrigin::user);
  EXPECT_EQ(python_origin("<dynamic-code>"), PythonOrigin::user) << "of cloudpickle";
  EXPECT_EQ(python_origin("<ipython-input-3-0123>"), PythonOrigin::user);
  EXPECT_EQ(top_package(in_site("numpy/core/x.py")), in_site("numpy/"));
  EXPECT_EQ(top_package(in_site("six.py")), in_site("six.py"));
  const PackageFolderList folders{"/home/u/deps/"};
  EXPECT_EQ(python_origin("/home/u/deps/numpy/x.py", folders), PythonOrigin::package);
  EXPECT_EQ(python_origin("/home/u/deps.py", folders), PythonOrigin::user);
  EXPECT_EQ(top_package("/home/u/deps/numpy/core/x.py", folders), "/home/u/deps/numpy/");
  EXPECT_EQ(path_in_package("/home/u/deps/numpy/x.py", folders), "numpy/x.py");
  EXPECT_EQ(top_package("/usr/lib/python3.11/http/server.py"), "/usr/lib/python3.11/http/");
  EXPECT_EQ(top_package("/home/u/job.py"), "");
  EXPECT_EQ(path_in_package(in_site("numpy/core/x.py")), "numpy/core/x.py");
  EXPECT_EQ(path_in_package("/usr/lib/python3.11/http/server.py"), "http/server.py");
  EXPECT_EQ(path_in_package("/home/u/job.py"), "");
}

TEST(Blame, MethodsOfADataclassAreTheirCallers) {
  EXPECT_EQ(blamed({{{"<string>", "__create_fn__.<locals>.__init__"}, {"/home/u/a.py", "grow"}}}), "/home/u/a.py grow");
  EXPECT_EQ(blamed({{{"<string>", "__create_fn__.<locals>.__init__"}, {"<string>", "grow"}, {"<string>", "<module>"}}}),
            "<string> grow");
  EXPECT_EQ(blamed({{{"<string>", "__init__"}, {in_site("numpy/x.py"), "load"}}}), in_site("numpy/x.py load"));
  // What python -c runs is the program.
  EXPECT_EQ(blamed({{{in_site("numpy/x.py"), "load"}, {"<string>", "<module>"}}}), "<string> <module>");
}

TEST(Blame, TheLinesThatCallTheFunctionToBlame) {
  const auto caller = [](const Lines& lines) {
    StackTable stacks;
    const StackId stack = python_frames(stacks, lines);
    stacks.set_program_code(find_program_code(stacks));
    std::string names;
    for (const Frame* frame : calling_frames(stacks, stack)) names += frame->function + " ";
    return names;
  };
  const std::string user = "/home/u/a.py", other = "/home/u/b.py", package = in_site("numpy/x.py");
  EXPECT_EQ(caller({{package, "zeros"}, {user, "take"}, {user, "load"}, {user, "main"}}), "load main ");
  EXPECT_EQ(caller({{user, "walk"}, {user, "walk"}, {package, "apply"}, {other, "load"}}), "load ");
  EXPECT_EQ(caller({{user, "take"}, {other, "take"}}), "take ") << "of another file";
  EXPECT_EQ(caller({{user, "main"}}), "");
  EXPECT_EQ(caller({{package, "zeros"}, {package, "full"}}), "") << "no line is the program's own";
}

// What a loop runs when it is due is not asked for by the line that started the loop.
TEST(Blame, WhatAnEventLoopRunsIsNotOfTheLineThatStartedIt) {
  const Lines loop{{"/usr/lib/python3.11/asyncio/events.py", "Handle._run"},
                   {"/usr/lib/python3.11/asyncio/base_events.py", "BaseEventLoop._run_once"},
                   {"/home/u/server.py", "<module>"}};
  const auto in_loop = [&](Lines lines) {
    lines.insert(lines.end(), loop.begin(), loop.end());
    return blamed({lines});
  };
  const std::pair<std::string, std::string> socket{"/usr/lib/python3.11/asyncio/selector_events.py", "_read_ready"};
  EXPECT_EQ(in_loop({{in_site("aiohttp/client_proto.py"), "data_received"}, socket}),
            in_site("aiohttp/client_proto.py") + " data_received");
  EXPECT_EQ(in_loop({socket}), socket.first + " _read_ready");
  EXPECT_EQ(in_loop({{in_site("aiohttp/web.py"), "start"}, {"/home/u/server.py", "handler"}}),
            "/home/u/server.py handler");
  EXPECT_EQ(in_loop({}), "/home/u/server.py <module>") << "the loop itself";
}

TEST(Blame, AFrameWhoseCodeIsNotKnownIsNotNamed) {
  EXPECT_EQ(blamed({{{"", ""}, {"/home/u/a.py", "grow"}}}), "/home/u/a.py grow");
  EXPECT_EQ(blamed({{{"", ""}}}), "");
}

// A frame of native code, with its line where that is above 0.
FrameId native_frame(StackTable& stacks, const std::string& module, const std::string& file, int line) {
  return stacks.intern(
      Frame{.function = "f", .file = file, .line = line, .module = stacks.intern(Module{module, "id"})});
}

TEST(Blame, TheNativeLineByWhichPythonGotItsMemory) {
  StackTable stacks;
  const std::string extension = in_site("fast/core.cpython-311-x86_64-linux-gnu.so");
  const FrameId python =
      stacks.intern(Frame{.kind = FrameKind::python, .function = "load", .file = "/home/u/a.py", .line = 4});
  const FrameId runtime = native_frame(stacks, "/usr/bin/python3.11", "Objects/call.c", 200);
  const FrameId inner = native_frame(stacks, extension, "src/fast.c", 6);
  const FrameId outer = native_frame(stacks, extension, "src/fast.c", 20);
  const FrameId header = native_frame(stacks, extension, "/usr/include/c++/12/bits/new_allocator.h", 137);
  const FrameId stripped = native_frame(stacks, extension, "", 0);
  const FrameId malloc_frame = native_frame(stacks, "/usr/lib/x86_64-linux-gnu/libc.so.6", "malloc/malloc.c", 3300);
  const auto line_of = [&](const std::vector<FrameId>& frames) {
    return code_line(stacks, native_line_frame(stacks, stacks.intern(frames)));
  };
  EXPECT_EQ(line_of({malloc_frame, header, inner, outer, runtime, python}), "fast.c:6 in f");
  EXPECT_EQ(line_of({malloc_frame, stripped, outer, runtime, python}), "fast.c:20 in f");
  EXPECT_EQ(line_of({malloc_frame, stripped, runtime, python}), "") << "no line is known";
  EXPECT_EQ(line_of({malloc_frame, runtime, python}), "") << "the interpreter's own are those of all";
  EXPECT_EQ(line_of({runtime, python, inner}), "") << "what called the Python code";
  EXPECT_EQ(line_of({malloc_frame, inner, outer}), "") << "it is to blame itself";
}

TEST(Blame, TheNativeLineStandsWhereItHasNearlyAll) {
  const auto text = [](std::int64_t native_bytes) {
    return kept_where({{.line = "a.py:4 in load",
                        .file = "/home/u/a.py",
                        .number = 4,
                        .bytes = 100 << 20,
                        .native_line = "fast.c:6 in f",
                        .native_bytes = native_bytes}},
                      100 << 20, "allocated");
  };
  EXPECT_EQ(text(90 << 20), " (allocated at a.py:4 in load, by fast.c:6 in f)");
  EXPECT_EQ(text(60 << 20), " (allocated at a.py:4 in load)");
}

TEST(Blame, AnInstalledProgramIsTheProgram) {
  const std::string script = "/home/u/venv/bin/job", store = in_site("jobs/store.py"), cli = in_site("jobs/cli.py");
  const std::string other = in_site("other/x.py"), library = "/usr/lib/python3.11/json/decoder.py";
  // By a script that calls main()
  EXPECT_EQ(blamed({{{library, "decode"}, {store, "keep"}, {cli, "main"}, {script, "<module>"}}}), store + " keep");
  EXPECT_EQ(blamed({{{other, "load"}, {store, "keep"}, {cli, "main"}, {script, "<module>"}}}), store + " keep");
  // What other stacks say of it counts for those of its threads, and for the script itself.
  const Lines started{{cli, "main"}, {script, "<module>"}};
  EXPECT_EQ(blamed({{{other, "load"}, {store, "work"}, {"/usr/lib/python3.11/threading.py", "run"}}, started}),
            store + " work");
  EXPECT_EQ(blamed({{{library, "<module>"}, {script, "<module>"}}, started}), script + " <module>");
  // By click, which calls what the command line says
  const std::string click = in_site("click/core.py");
  EXPECT_EQ(blamed({{{other, "load"}, {store, "serve"}, {click, "invoke"}, {click, "__call__"}, {script, "<module>"}}}),
            store + " serve");
  // By its name
  EXPECT_EQ(blamed({{{other, "load"}, {in_site("my_job/a.py"), "x"}, {"/usr/bin/my-job", "<module>"}}}),
            in_site("my_job/a.py x"));
  // By python -m, and by its path
  const std::string debian = "/usr/lib/python3/dist-packages/tool/__main__.py";
  EXPECT_EQ(blamed({{{other, "load"}, {debian, "keep"}, {debian, "<module>"}, {"<frozen runpy>", "_run_code"}}}),
            debian + " keep");
  EXPECT_EQ(blamed({{{other, "load"}, {debian, "keep"}, {debian, "<module>"}}}), debian + " keep");
  // Its own copies of other packages are not it.
  EXPECT_EQ(
      blamed(
          {{{in_site("pip/_vendor/rich/x.py"), "x"}, {in_site("pip/cli.py"), "main"}, {"/usr/bin/pip", "<module>"}}}),
      in_site("pip/cli.py main"));
}

TEST(Blame, AScriptThatDoesTheWorkIsNoLauncher) {
  const std::string script = "/home/u/bin/job", numpy = in_site("numpy/x.py");
  EXPECT_EQ(blamed({{{numpy, "load"}, {script, "<module>"}}}), script + " <module>");
  EXPECT_EQ(blamed({{{numpy, "main"}, {script, "<module>"}}, {{script, "load"}, {script, "<module>"}}}),
            script + " <module>");
  // The user's own code inside of an installed program: a test, a server's application
  EXPECT_EQ(blamed({{{in_site("pytest/x.py"), "raises"},
                     {"/home/u/test_a.py", "test_a"},
                     {in_site("pytest/main.py"), "main"},
                     {"/home/u/venv/bin/pytest", "<module>"}}}),
            "/home/u/test_a.py test_a");
}

std::string blamed_native(const std::vector<std::pair<std::string, std::string>>& frames) {
  StackTable stacks;
  return blamed_line(stacks, literal::native_stack(stacks, frames));
}

constexpr const char* kLibc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
constexpr const char* kStdlib = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";

TEST(Blame, WhatStandsInsideOfAnAllocatorIsItsOwn) {
  const std::string library = "/v/site-packages/fast/fast.so";
  EXPECT_EQ(blamed_native({{"os_pages_map.constprop.0", library},
                           {"pac_alloc_real", library},
                           {"_rjem_je_pa_alloc", library},
                           {"load_table", library}}),
            "load_table (fast.so)");
  EXPECT_EQ(blamed_native({{"grow_pool", "/opt/prog"}, {"malloc", "/opt/prog"}, {"work", "/opt/prog"}}), "work (prog)");
}

TEST(Blame, AllocatorsOfRustAreTheirCallers) {
  const std::string program = "/home/u/job";
  for (const char* function : {"__rustc::__rust_alloc", "<job::Counting as core::alloc::global::GlobalAlloc>::alloc"})
    EXPECT_EQ(blamed_native({{"malloc", kLibc}, {function, program}, {"job::keep", program}}), "job::keep (job)");
  const Frame inlined{.kind = FrameKind::native,
                      .function = "iralloct",
                      .file = "include/jemalloc/internal/jemalloc_internal_inlines_c.h",
                      .line = 194};
  EXPECT_EQ(native_code(inlined, program), NativeCode::allocator);
}

// A library that calls a stripped program back has not asked for what that allocates.
TEST(Blame, AStrippedProgramThatALibraryCallsBack) {
  const std::string event = "/usr/lib/x86_64-linux-gnu/libevent-2.1.so.7", own = "/home/u/libscan.so";
  const std::string installed = "/usr/bin/memcached", built = "/home/u/server";
  for (const std::string& program : {installed, built})
    for (const std::string& library : {event, own})
      EXPECT_EQ(blamed_native({{"malloc", kLibc}, {"", program}, {"dispatch", library}, {"", program}}),
                base_name(program) + "+0x1001");
  EXPECT_EQ(blamed_native({{"malloc", kLibc}, {"copy", event}, {"", installed}, {"dispatch", event}}),
            "copy (libevent-2.1.so.7)");
  EXPECT_EQ(blamed_native({{"malloc", kLibc}, {"", built}, {"handle", built}, {"dispatch", event}}), "handle (server)");
}

// The stack that started a thread says who is to blame, and nothing about what the thread did.
TEST(Blame, TheLineThatStartedAThread) {
  StackTable stacks;
  const auto python = [&](const char* file, int line) {
    return stacks.intern(Frame{.kind = FrameKind::python, .function = "f", .file = file, .line = line});
  };
  const FrameId library = python("/usr/lib/python3.11/json/decoder.py", 3), own = python("/home/u/job.py", 12);
  const FrameId importer = python("<frozen importlib._bootstrap>", 1);
  const FrameId native = stacks.intern(Frame{.function = "copy", .file = {}});
  const auto in_thread = [&](const std::vector<FrameId>& frames, const std::vector<FrameId>& starter) {
    return in_thread_of(stacks, stacks.intern(frames), stacks.intern(starter));
  };
  const StackId pool = in_thread({library}, {library, own});
  EXPECT_EQ(blamed_line(stacks, pool), "job.py:12 in f");
  EXPECT_EQ(done_by(stacks, pool), DoneBy::started_thread);
  EXPECT_EQ(done_by(stacks, stacks.intern({library, own})), DoneBy::itself);
  EXPECT_EQ(done_by(stacks, kEmptyStack), DoneBy::itself);
  const StackId of_library = in_thread({native}, {library, importer, own});
  EXPECT_EQ(done_by(stacks, of_library), DoneBy::started_thread);
  EXPECT_FALSE(is_python_object(stacks, of_library)) << "no Python code asked for it";
  EXPECT_EQ(imported_frame(stacks, of_library), nullptr) << "what a thread does after an import is no import";
  const StackId imports = in_thread({library, importer}, {own});
  ASSERT_NE(imported_frame(stacks, imports), nullptr);
  EXPECT_EQ(imported_frame(stacks, imports)->line, 3);
}

// py_compile has importlib compile a file, which imports nothing.
TEST(Blame, WhatIsCompiledAloneIsNoImport) {
  StackTable stacks;
  const auto python = [&](const char* file, int line, const char* function) {
    return stacks.intern(Frame{.kind = FrameKind::python, .function = function, .file = file, .line = line});
  };
  const FrameId calls = python("<frozen importlib._bootstrap>", 241, "_call_with_frames_removed");
  const FrameId compiles = python("<frozen importlib._bootstrap_external>", 1004, "SourceLoader.source_to_code");
  const FrameId gets = python("<frozen importlib._bootstrap_external>", 1073, "SourceLoader.get_code");
  const FrameId library = python("/usr/lib/python3.11/py_compile.py", 144, "compile");
  const FrameId own = python("/home/u/job.py", 12, "main");
  EXPECT_EQ(imported_frame(stacks, stacks.intern({calls, compiles, library, own})), nullptr);
  EXPECT_EQ(imported_frame(stacks, stacks.intern({calls, compiles})), nullptr);
  EXPECT_NE(imported_frame(stacks, stacks.intern({calls, compiles, gets, library, own})), nullptr) << "a module's code";
  EXPECT_NE(imported_frame(stacks, stacks.intern({calls, compiles, library, gets, own})), nullptr)
      << "a module that compiles while it is imported";
}

// What a thread of a library does while another one waits for it is of the line that waits; but no call leads
// there.
TEST(Blame, TheLineThatWaited) {
  StackTable stacks;
  const auto python = [&](const char* file, int line) {
    return stacks.intern(Frame{.kind = FrameKind::python, .function = "f", .file = file, .line = line});
  };
  const FrameId library = python("/v/site-packages/frames/frame.py", 3), own = python("/home/u/job.py", 12);
  const FrameId importer = python("<frozen importlib._bootstrap>", 1);
  const FrameId native = stacks.intern(Frame{.function = "grow", .file = {}});
  const StackId waited = stacks.intern({native, waiter_frame(stacks), library, own});
  EXPECT_EQ(blamed_line(stacks, waited), "job.py:12 in f");
  EXPECT_EQ(done_by(stacks, waited), DoneBy::other_thread);
  EXPECT_FALSE(is_python_object(stacks, waited));
  EXPECT_EQ(imported_frame(stacks, waited), nullptr);
  const StackId imports = stacks.intern({native, waiter_frame(stacks), library, importer, own});
  ASSERT_NE(imported_frame(stacks, imports), nullptr) << "the import waits for it";
  EXPECT_EQ(imported_frame(stacks, imports)->line, 3);
  const StackId both =
      in_thread_of(stacks, stacks.intern({native, waiter_frame(stacks), library}), stacks.intern({own}));
  EXPECT_EQ(done_by(stacks, both), DoneBy::started_thread);
}

// A process that was forked goes on with the stack of the line that started it.
TEST(Blame, TheLineThatStartedAProcess) {
  StackTable stacks;
  const auto python = [&](const char* file, int line, const char* function) {
    return stacks.intern(Frame{.kind = FrameKind::python, .function = function, .file = file, .line = line});
  };
  const FrameId gets = python("/usr/lib/python3.11/multiprocessing/queues.py", 367, "get");
  const FrameId begins = python("/usr/lib/python3.11/multiprocessing/process.py", 314, "BaseProcess._bootstrap");
  const FrameId starts = python("/usr/lib/python3.11/multiprocessing/process.py", 121, "BaseProcess.start");
  const FrameId makes = python("/home/u/job.py", 12, "main"), works = python("/home/u/job.py", 4, "work");
  const StackId receives = stacks.intern({gets, begins, starts, makes});
  EXPECT_EQ(blamed_line(stacks, receives), "job.py:12 in main");
  EXPECT_EQ(done_by(stacks, receives), DoneBy::started_process);
  EXPECT_EQ(done_by(stacks, stacks.intern({works, begins, starts, makes})), DoneBy::itself);
  EXPECT_EQ(done_by(stacks, stacks.intern({starts, makes})), DoneBy::itself);
  EXPECT_EQ(done_by(stacks, in_thread_of(stacks, stacks.intern({gets}), receives)), DoneBy::started_process);
}

TEST(Blame, AllocatorsAndStartAreNamedLast) {
  const std::string program = "/home/u/program";
  for (const char* allocator :
       {"malloc", "je_arena_malloc_hard", "duckdb_je_mallocx", "_rjem_je_large_malloc", "mi_heap_malloc_small",
        "_mi_page_malloc", "tc_malloc", "tcmalloc::ThreadCache::FetchFromCentralCache()",
        "operator new[](unsigned long)", "__rust_alloc", "xmalloc",
        "void* std::allocator<char>::allocate(unsigned long)", "_PyObject_GC_NewVar"})
    EXPECT_EQ(blamed_native({{allocator, program}, {"load", program}, {"main", program}}), "load (program)")
        << allocator;
  for (const char* start : {"_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone3"})
    EXPECT_EQ(blamed_native({{"getdelim", kLibc}, {start, kLibc}}), "getdelim (libc.so.6)") << start;
  EXPECT_EQ(blamed_native({{"_int_malloc", kLibc}, {"malloc", kLibc}, {"fopen64", kLibc}, {"start_thread", kLibc}}),
            "fopen64 (libc.so.6)");
  EXPECT_EQ(blamed_native({{"malloc", kLibc}, {"__libc_start_call_main", kLibc}}), "malloc (libc.so.6)");
  // Wrappers of C programs, where no source tells what they do
  for (const char* wrapper : {"Perl_safesysmalloc", "g_malloc0", "g_slice_alloc", "ruby_xmalloc", "sqlite3MemMalloc",
                              "xnmalloc", "CRYPTO_zalloc", "xstrdup", "luaM_realloc"})
    EXPECT_EQ(blamed_native({{"malloc", kLibc}, {wrapper, "/usr/bin/job"}, {"load", "/usr/bin/job"}}), "load (job)")
        << wrapper;
  // Of Cython and mypyc, whatever is known of their source; not CPyCppyy, which is C++.
  for (const char* helper : {"__Pyx_PySequence_Multiply", "CPyList_Append"})
    EXPECT_EQ(blamed_native({{"malloc", kLibc}, {helper, program}, {"cyjob.keep_rows", program}}),
              "cyjob.keep_rows (program)")
        << helper;
  EXPECT_EQ(blamed_native({{"malloc", kLibc}, {"CPyCppyy::Bind(void*)", program}, {"main", program}}),
            "CPyCppyy::Bind(void*) (program)");
  // Functions of the program that only begin alike
  for (const char* own : {"mi_cmd_open", "tc_filter_add", "mallocate", "freeze"})
    EXPECT_EQ(blamed_native({{"malloc", kLibc}, {own, program}, {"main", program}}), std::string(own) + " (program)");
}

TEST(Blame, AStrippedProgramIsNamedByItsOffset) {
  EXPECT_EQ(blamed_native({{"malloc", kLibc}, {"", "/home/u/program"}, {"__libc_start_call_main", kLibc}}),
            "program+0x1001");
  EXPECT_EQ(blamed_native({{"std::string::_M_mutate(unsigned long)", kStdlib}, {"", "/home/u/program"}}),
            "program+0x1001");
  EXPECT_EQ(blamed_native({{"sqlite3_step", "/usr/lib/libsqlite3.so.0"}, {"", "/home/u/program (deleted)"}}),
            "program+0x1001");
  // main() alone has a name where the rest was stripped.
  EXPECT_EQ(blamed_native({{"", "/home/u/program"}, {"main", "/home/u/program"}}), "program+0x1000");
  EXPECT_EQ(blamed_native({{"malloc", kLibc}, {"main", "/home/u/program"}}), "main (program)");
  // What has a name is better: of the program first
  EXPECT_EQ(blamed_native({{"", "/home/u/libhelper.so"}, {"load", "/home/u/program"}}), "load (program)");
  EXPECT_EQ(blamed_native({{"", "/usr/lib/liba.so"}, {"g_new", "/usr/lib/libb.so"}}), "g_new (libb.so)");
  // Code made at run time has no module.
  EXPECT_EQ(blamed_native({{"", ""}}), "");
}

TEST(Blame, LibrariesOfTheSystemComeAfterTheProgram) {
  EXPECT_EQ(blamed_native({{"sqlite3MemMalloc", "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0"},
                           {"load", "/home/u/program"},
                           {"main", "/home/u/program"}}),
            "load (program)");
  EXPECT_EQ(blamed_native({{"helper_copy", "/home/u/libhelper.so"}, {"load", "/home/u/program"}}),
            "helper_copy (libhelper.so)");
  EXPECT_EQ(blamed_native({{"png_read", "/usr/local/lib/libpng.so"}, {"load", "/usr/local/bin/program"}}),
            "load (program)");
  // A program of the system's own has no other code.
  EXPECT_EQ(blamed_native({{"gs_alloc", "/usr/lib/x86_64-linux-gnu/libgs.so.10"}, {"", "/usr/bin/gs"}}),
            "gs_alloc (libgs.so.10)");
  EXPECT_EQ(blamed_native({{"g_new", "/usr/lib/libglib.so"}, {"load", "/usr/bin/program"}}), "load (program)");
}

TEST(Blame, NamesOfTheLanguage) {
  EXPECT_EQ(without_return_type("void std::vector<int>::_M_realloc_insert<int>(int&&)"),
            "std::vector<int>::_M_realloc_insert<int>(int&&)");
  EXPECT_EQ(without_return_type("std::vector<int, std::allocator<int> > build<int>(int)"), "build<int>(int)");
  EXPECT_EQ(without_return_type("operator new(unsigned long)"), "operator new(unsigned long)");
  EXPECT_EQ(without_return_type("Pool::operator new(unsigned long)"), "Pool::operator new(unsigned long)");
  EXPECT_EQ(without_return_type("bool (anonymous namespace)::grow<char>(char)"),
            "(anonymous namespace)::grow<char>(char)");
  EXPECT_EQ(without_return_type("<alloc::vec::Vec<T> as core::clone::Clone>::clone"),
            "<alloc::vec::Vec<T> as core::clone::Clone>::clone");
  EXPECT_EQ(without_return_type(""), "");
  const std::string program = "/home/u/program";
  EXPECT_EQ(blamed_native({{"int* std::__copy<int>(int*)", program}, {"grow()", program}}), "grow() (program)");
  EXPECT_EQ(blamed_native({{"std::vector<int> build<int>(int)", program}, {"load()", program}}),
            "std::vector<int> build<int>(int) (program)");
  EXPECT_EQ(blamed_native({{"core::Engine::grow(unsigned long)", program}, {"load()", program}}),
            "core::Engine::grow(unsigned long) (program)");
  EXPECT_EQ(blamed_native({{"hashbrown::raw::RawTable<T,A>::reserve_rehash", program}, {"job::fill", program}}),
            "job::fill (program)");
  for (const char* library : {"library/alloc/src/alloc.rs", "/rustc/0123/library/alloc/src/alloc.rs",
                              "/rust/deps/hashbrown-0.16.1/src/map.rs", "/usr/include/c++/12/bits/stl_vector.h"}) {
    StackTable stacks;
    const ModuleId module = stacks.intern(Module{program, "id"});
    const FrameId inner = stacks.intern(Frame{.function = "grow", .file = library, .line = 95, .module = module});
    const FrameId outer = stacks.intern(Frame{.function = "f", .file = "/home/u/job.rs", .line = 5, .module = module});
    EXPECT_EQ(blamed_line(stacks, stacks.intern({inner, outer})), "job.rs:5 in f") << library;
  }
}

TEST(Received, ItemsAndResults) {
  const std::string library = "/usr/lib/python3.11";
  const auto received = [&](const std::vector<std::pair<std::string, std::string>>& calls) {
    StackTable stacks;
    std::vector<FrameId> frames;
    for (const auto& [file, function] : calls)
      frames.push_back(stacks.intern(Frame{.kind = FrameKind::python,
                                           .function = function,
                                           .file = file.starts_with('/') ? file : library + "/" + file,
                                           .line = 3}));
    return received_as(stacks, stacks.intern(frames));
  };
  const std::pair<std::string, std::string> recv{"multiprocessing/connection.py", "_ConnectionBase.recv"};
  EXPECT_EQ(received({recv, {"/home/u/job.py", "f"}}), Received::item);
  EXPECT_EQ(received({{"multiprocessing/queues.py", "Queue.get"}, {"multiprocessing/pool.py", "worker"}}),
            Received::item);
  EXPECT_EQ(received({recv, {"multiprocessing/pool.py", "Pool._handle_results"}}), Received::result);
  EXPECT_EQ(received({recv, {"concurrent/futures/process.py", "_ExecutorManagerThread.wait_result_broken_or_wakeup"}}),
            Received::result);
  EXPECT_EQ(received({recv,
                      {"/venv/lib/python3.12/site-packages/joblib/externals/loky/process_executor.py",
                       "_ExecutorManagerThread.wait_result_broken_or_wakeup"}}),
            Received::result);
  EXPECT_EQ(received({{"/home/u/job.py", "f"}, {"multiprocessing/process.py", "BaseProcess.run"}, recv}), Received::no);
  EXPECT_EQ(received({{"concurrent/futures/process.py", "wait_result_broken_or_wakeup"}}), Received::no);
}

TEST(BlamedNative, APoolOfTheProgramIsNotToBlame) {
  StackTable stacks;
  for (const char* pool :
       {"Pool::allocate(unsigned long)", "demo::Pool<int, std::less<int> >::do_allocate<8>(unsigned long)",
        "(anonymous namespace)::Arena::alloc_slow(int)", "typed_arena::Arena<T>::alloc",
        "arrow::BaseMemoryPoolImpl<A>::Reallocate(long, long)", "void* my::Allocator::AllocateRaw(int)"})
    EXPECT_EQ(
        blamed_line(stacks, literal::native_stack(stacks, {{pool, "/home/u/job"}, {"build(int)", "/home/u/job"}})),
        "build(int) (job)")
        << pool;
  for (const char* own : {"allocate(unsigned long)", "ThreadPool::run()", "Table::grow(int)", "Allocation::add(int)"})
    EXPECT_EQ(blamed_line(stacks, literal::native_stack(stacks, {{own, "/home/u/job"}, {"build(int)", "/home/u/job"}})),
              std::string(own) + " (job)");
}

}  // namespace
}  // namespace whyrss::blame_test
