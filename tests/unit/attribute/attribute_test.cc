// Each rule on evidence that is written down here, byte by byte.
#include "attribute/attribute.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace whyrss::attribute_test {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr auto kCall = StackId{3};
constexpr auto kOther = StackId{4};

std::uint64_t page(std::uint64_t number) { return number * kPage; }

// One mapping of 16 pages at page 16, of which `resident` pages from its start on are resident.
Evidence one_mapping(Vma vma, std::uint64_t resident = 8, bool file = false, bool exclusive = true) {
  Evidence evidence;
  evidence.traced = true;
  vma.start = page(16);
  vma.end = page(32);
  evidence.vmas = {std::move(vma)};
  evidence.runs = {{page(16), page(16 + resident), file, exclusive}};
  return evidence;
}

Vma anonymous() { return {.path = {}, .backing = Backing::anonymous, .writable = true}; }

// Bytes by site; the sum is checked against RSS.
std::map<Site, std::int64_t> sites(const Evidence& evidence) {
  const Account account = attribute(evidence);
  std::map<Site, std::int64_t> result;
  std::int64_t total = 0;
  for (const Slice& slice : account.slices) {
    result[slice.site] += slice.bytes;
    total += slice.bytes;
  }
  EXPECT_EQ(total, account.rss_bytes);
  return result;
}

using Sites = std::map<Site, std::int64_t>;

TEST(Whyrss, ClaimsThePoolTheLibraryAndItsOwnMappings) {
  EXPECT_EQ(sites(one_mapping({.path = "/dev/shm/whyrss.x", .backing = Backing::shmem, .shared = true})),
            (Sites{{{Cause::whyrss, kEmptyStack, "/dev/shm/whyrss.x"}, 8 * 4096}}));
  EXPECT_EQ(sites(one_mapping({.path = "/opt/lib/libwhyrss.so", .backing = Backing::file}, 8, true)),
            (Sites{{{Cause::whyrss, kEmptyStack, "/opt/lib/libwhyrss.so"}, 8 * 4096}}));
  Evidence pool = one_mapping({.path = "/rec/pool (deleted)", .backing = Backing::file, .shared = true}, 8, true);
  pool.pool_path = "/rec/pool";
  EXPECT_EQ(sites(pool), (Sites{{{Cause::whyrss, kEmptyStack, "/rec/pool (deleted)"}, 8 * 4096}}));
  Evidence tables = one_mapping(anonymous());
  tables.owned = {{page(16), page(18), Owner::whyrss, kEmptyStack}};
  EXPECT_EQ(sites(tables)[(Site{Cause::whyrss, kEmptyStack, ""})], 2 * 4096);
}

TEST(Device, ClaimsDeviceFilesButNotPrivateZeroMappings) {
  EXPECT_EQ(sites(one_mapping({.path = "/dev/kfd", .backing = Backing::device, .shared = true}, 8, true)),
            (Sites{{{Cause::device, kEmptyStack, "/dev/kfd"}, 8 * 4096}}));
  Evidence zero = one_mapping({.path = "/dev/zero", .backing = Backing::device, .writable = true});
  zero.owned = {{page(16), page(32), Owner::program, kCall}};
  EXPECT_EQ(sites(zero), (Sites{{{Cause::anonymous, kCall, "/dev/zero"}, 8 * 4096}}));
}

TEST(SharedMemory, ClaimsShmemAndSharedAnonymous) {
  Evidence memfd = one_mapping({.path = "/memfd:x (deleted)", .backing = Backing::shmem, .shared = true}, 8, true);
  memfd.owned = {{page(16), page(32), Owner::program, kCall}};
  EXPECT_EQ(sites(memfd), (Sites{{{Cause::shared_memory, kCall, "/memfd:x (deleted)"}, 8 * 4096}}));
  EXPECT_EQ(sites(one_mapping({.path = "/dev/shm/x", .backing = Backing::shmem}, 8, true)),
            (Sites{{{Cause::shared_memory, kEmptyStack, "/dev/shm/x"}, 8 * 4096}}));
  EXPECT_EQ(sites(one_mapping({.path = "/dev/shm/x", .backing = Backing::shmem}, 8, false)),
            (Sites{{{Cause::file_cow, kEmptyStack, "/dev/shm/x"}, 8 * 4096}}));
}

TEST(Files, AreCacheWithTheFileBitAndCopiesWithoutIt) {
  Evidence evidence = one_mapping({.path = "/data", .backing = Backing::file, .writable = true}, 6, true, false);
  evidence.runs.push_back({page(22), page(24), false, true});
  evidence.owned = {{page(16), page(20), Owner::program, kCall}, {page(20), page(32), Owner::program, kOther}};
  EXPECT_EQ(sites(evidence), (Sites{{{Cause::file_cache, kCall, "/data"}, 4 * 4096},
                                    {{Cause::file_cache, kOther, "/data"}, 2 * 4096},
                                    {{Cause::file_cow, kOther, "/data"}, 2 * 4096}}));
}

TEST(Fork, CopiedAndSharedPagesBearTheAncestorsStack) {
  Evidence evidence = one_mapping({.path = "[heap]", .writable = true});
  evidence.inherited = {{page(16), page(18), ForkClass::copied},
                        {page(18), page(20), ForkClass::sole},
                        {page(20), page(21), ForkClass::shared}};
  evidence.ancestor_owned = {{page(16), page(17), Owner::block, kCall}, {page(18), page(19), Owner::pymalloc, kOther}};
  evidence.owned = {{page(16), page(22), Owner::block, StackId{99}}};
  EXPECT_EQ(sites(evidence), (Sites{{{Cause::fork_cow, kCall, "[heap]"}, 4096},
                                    {{Cause::fork_cow, kEmptyStack, "[heap]"}, 4096},
                                    {{Cause::fork_shared, kOther, "[heap]"}, 4096},
                                    {{Cause::fork_shared, kEmptyStack, "[heap]"}, 2 * 4096},
                                    {{Cause::heap_live, StackId{99}, "[heap]"}, 4096},
                                    {{Cause::heap_live, kEmptyStack, "[heap]"}, 2 * 4096}}));
}

TEST(Fork, PrivateCopiesOfFilePagesStayFileCopies) {
  Evidence evidence = one_mapping({.path = "/lib.so", .backing = Backing::file, .writable = true});
  evidence.inherited = {{page(16), page(32), ForkClass::shared}};
  EXPECT_EQ(sites(evidence), (Sites{{{Cause::file_cow, kEmptyStack, "/lib.so"}, 8 * 4096}}));
}

TEST(Stack, ClaimsTheMainStackAndThreadStacks) {
  EXPECT_EQ(sites(one_mapping({.path = "[stack]", .writable = true})),
            (Sites{{{Cause::stack, kEmptyStack, "[stack]"}, 8 * 4096}}));
  Evidence thread = one_mapping(anonymous());
  thread.thread_stacks = {{page(16), page(20), kCall}};
  EXPECT_EQ(sites(thread),
            (Sites{{{Cause::stack, kCall, ""}, 4 * 4096}, {{Cause::unknown, kEmptyStack, ""}, 4 * 4096}}));
}

TEST(HeapLive, GivesBlocksToTheirCallAndTheRestToTheHeap) {
  Evidence evidence = one_mapping({.path = "[heap]", .writable = true});
  evidence.owned = {{page(16) + 16, page(18), Owner::block, kCall}, {page(23), page(30), Owner::block, kOther}};
  EXPECT_EQ(sites(evidence), (Sites{{{Cause::heap_live, kCall, "[heap]"}, 2 * 4096 - 16},
                                    {{Cause::heap_live, kOther, "[heap]"}, 4096},
                                    {{Cause::heap_live, kEmptyStack, "[heap]"}, 5 * 4096 + 16}}));
}

TEST(HeapLive, ClaimsArenasOfPymallocAndOfOtherAllocators) {
  Evidence evidence = one_mapping(anonymous());
  evidence.owned = {{page(16), page(20), Owner::pymalloc, kCall}, {page(20), page(32), Owner::allocator, kOther}};
  EXPECT_EQ(sites(evidence),
            (Sites{{{Cause::heap_live, kCall, ""}, 4 * 4096}, {{Cause::heap_live, kEmptyStack, ""}, 4 * 4096}}));
}

TEST(HeapLive, ClaimsMappingsThatEverHeldABlockAndGlibcArenas) {
  Evidence freed = one_mapping(anonymous());
  freed.held_blocks = {{page(16), page(17)}};
  EXPECT_EQ(sites(freed), (Sites{{{Cause::heap_live, kEmptyStack, ""}, 8 * 4096}}));

  const std::uint64_t arena = 64ULL * 1024 * 1024;
  Evidence evidence;
  evidence.traced = true;
  evidence.vmas = {{.start = arena - page(2), .end = arena + page(4), .path = {}, .writable = true},
                   {.start = arena + page(4), .end = 2 * arena, .path = {}}};
  evidence.runs = {{arena - page(2), arena + page(1), false, true}};
  evidence.owned = {{arena - page(2), arena - page(1), Owner::program, kCall}};
  EXPECT_EQ(sites(evidence), (Sites{{{Cause::anonymous, kCall, ""}, 4096},
                                    {{Cause::heap_live, kEmptyStack, ""}, 4096},
                                    {{Cause::unknown, kEmptyStack, ""}, 4096}}));
  evidence.vmas[1].end -= page(1);  // not the rest of an arena: memory that crosses a boundary by chance
  EXPECT_EQ(sites(evidence),
            (Sites{{{Cause::anonymous, kCall, ""}, 4096}, {{Cause::unknown, kEmptyStack, ""}, 2 * 4096}}));
}

TEST(Anonymous, ClaimsLoggedMappingsTheProgramsBreakAndBss) {
  Evidence mapped = one_mapping(anonymous());
  mapped.owned = {{page(16), page(19), Owner::program, kCall}};
  EXPECT_EQ(sites(mapped),
            (Sites{{{Cause::anonymous, kCall, ""}, 3 * 4096}, {{Cause::unknown, kEmptyStack, ""}, 5 * 4096}}));

  Evidence broke = one_mapping({.path = "[heap]", .writable = true});
  broke.owned = {{page(20), page(32), Owner::program, kCall}};
  EXPECT_EQ(sites(broke), (Sites{{{Cause::anonymous, kCall, "[heap]"}, 4 * 4096},
                                 {{Cause::heap_live, kEmptyStack, "[heap]"}, 4 * 4096}}));

  Evidence bss = one_mapping(anonymous());
  bss.vmas.insert(
      bss.vmas.begin(),
      {{.start = page(12), .end = page(14), .path = "/lib.so", .backing = Backing::file, .executable = true},
       {.start = page(14), .end = page(16), .path = "/lib.so", .backing = Backing::file, .writable = true}});
  EXPECT_EQ(sites(bss), (Sites{{{Cause::anonymous, kEmptyStack, "/lib.so"}, 8 * 4096}}));
  Evidence own = bss;
  own.vmas[0].path = own.vmas[1].path = "/opt/libwhyrss.so";
  EXPECT_EQ(sites(own), (Sites{{{Cause::whyrss, kEmptyStack, ""}, 8 * 4096}}));
  bss.vmas.front().executable = false;  // a data file that happens to lie there
  EXPECT_EQ(sites(bss), (Sites{{{Cause::unknown, kEmptyStack, ""}, 8 * 4096}}));
}

TEST(Anonymous, ClaimsBssBeyondAnArenasBoundary) {
  const std::uint64_t boundary = 64ULL * 1024 * 1024;
  Evidence evidence;
  evidence.traced = true;
  const std::uint64_t start = boundary - page(1);
  evidence.vmas = {
      {.start = start - page(4),
       .end = start - page(2),
       .path = "/bin/x",
       .backing = Backing::file,
       .executable = true},
      {.start = start - page(2), .end = start, .path = "/bin/x", .backing = Backing::file, .writable = true},
      {.start = start, .end = boundary + page(3), .path = {}, .writable = true}};
  evidence.runs = {{start, boundary + page(3), false, true}};
  EXPECT_EQ(sites(evidence), (Sites{{{Cause::anonymous, kEmptyStack, "/bin/x"}, 4 * 4096}}));
  evidence.held_blocks = {{boundary, boundary + page(1)}};  // an arena that the kernel has joined to it
  EXPECT_EQ(sites(evidence), (Sites{{{Cause::heap_live, kEmptyStack, ""}, 4 * 4096}}));
}

TEST(Untraced, HeapAndNamelessMemoryAreUnknown) {
  Evidence heap = one_mapping({.path = "[heap]", .writable = true});
  heap.traced = false;
  EXPECT_EQ(sites(heap), (Sites{{{Cause::unknown, kEmptyStack, "[heap]"}, 8 * 4096}}));
  Evidence file = one_mapping({.path = "/bin/x", .backing = Backing::file}, 8, true);
  file.traced = false;
  EXPECT_EQ(sites(file), (Sites{{{Cause::file_cache, kEmptyStack, "/bin/x"}, 8 * 4096}}));
  Evidence nameless = one_mapping(anonymous());
  nameless.traced = false;
  EXPECT_EQ(sites(nameless), (Sites{{{Cause::unknown, kEmptyStack, ""}, 8 * 4096}}));
}

}  // namespace
}  // namespace whyrss::attribute_test
