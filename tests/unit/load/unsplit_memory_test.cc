// Which mappings are of an allocator inside a library, and what becomes of them.
#include "load/unsplit_memory.h"

#include <gtest/gtest.h>

#include "literal_accounts.h"
#include "model/library_allocator.h"

namespace whyrss::unsplit_memory_test {
namespace {

using literal::kMiB;

constexpr const char* kArrow = "/v/lib/python3.11/site-packages/pyarrow/libarrow.so.2600";
constexpr const char* kDuckdb = "/v/lib/python3.11/site-packages/_duckdb.cpython-311-x86_64-linux-gnu.so";
constexpr const char* kProgram = "/home/u/bin/server";

std::string mapped_by(const std::vector<std::pair<std::string, std::string>>& frames) {
  StackTable stacks;
  const auto found = allocator_that_mapped(stacks, literal::native_stack(stacks, frames));
  return found ? std::string(found->kind) + " in " + stacks[found->library].path : "";
}

TEST(LibraryAllocator, IsKnownByTheFunctionsThatMap) {
  EXPECT_EQ(mapped_by({{"unix_mmap_prim_aligned.constprop.0", kArrow}, {"_mi_prim_alloc", kArrow}}),
            std::string("mimalloc in ") + kArrow);
  EXPECT_EQ(mapped_by({{"os_pages_map", kArrow}, {"je_arrow_private_je_pages_map", kArrow}}),
            std::string("jemalloc in ") + kArrow);
  EXPECT_EQ(mapped_by({{"duckdb_je_pages_map", kDuckdb}, {"duckdb_je_extent_alloc_mmap", kDuckdb}}),
            std::string("jemalloc in ") + kDuckdb);
  EXPECT_EQ(mapped_by({{"_rjem_je_pages_map", "/v/_polars_runtime.abi3.so"}}),
            "jemalloc in /v/_polars_runtime.abi3.so");
  EXPECT_EQ(mapped_by({{"MmapSysAllocator::Alloc(unsigned long, unsigned long*, unsigned long)", kProgram}}),
            std::string("tcmalloc in ") + kProgram);
  EXPECT_EQ(mapped_by({{"tcmalloc::PageHeap::GrowHeap(unsigned long)", kProgram}}),
            std::string("tcmalloc in ") + kProgram);
}

TEST(LibraryAllocator, IsKnownByItsFileWhereFunctionsHaveNoNames) {
  EXPECT_EQ(mapped_by({{"", "/l/libmimalloc.so.2.0"}, {"", "/l/libmimalloc.so.2.0"}}),
            "mimalloc in /l/libmimalloc.so.2.0");
  EXPECT_EQ(mapped_by({{"", "/l/libtcmalloc_minimal.so.4"}}), "tcmalloc in /l/libtcmalloc_minimal.so.4");
}

TEST(LibraryAllocator, ServedABlockWhereItsFunctionIsTheInnermost) {
  StackTable stacks;
  const auto served = [&](const std::vector<std::pair<std::string, std::string>>& frames) {
    const auto found = allocator_that_served(stacks, literal::native_stack(stacks, frames));
    return found ? std::string(found->kind) + " in " + stacks[found->library].path : "";
  };
  EXPECT_EQ(served({{"arrow_mi_malloc_aligned", kArrow}, {"arrow::PoolBuffer::Reserve(long)", kArrow}}),
            std::string("mimalloc in ") + kArrow);
  EXPECT_EQ(served({{"arrow::PoolBuffer::Reserve(long)", kArrow}, {"je_malloc", kArrow}}), "");
  EXPECT_EQ(served({}), "");
}

TEST(LibraryAllocator, IsNotWhoCallsIt) {
  EXPECT_EQ(mapped_by({}), "");
  EXPECT_EQ(mapped_by({{"map_table", kProgram}, {"mi_open", kProgram}}), "") << "of MyISAM";
  EXPECT_EQ(mapped_by({{"read_file", "/l/libreader.so"}, {"je_malloc", kProgram}}), "") << "of another library";
  EXPECT_EQ(mapped_by({{"", kDuckdb}}), "") << "without a name";
  EXPECT_EQ(mapped_by({{"Pool::grow(unsigned long)", kProgram}}), "");
}

TEST(LibraryAllocator, HasTheNameThatPeopleUse) {
  EXPECT_EQ(allocator_name(kArrow), "Arrow's memory pool");
  EXPECT_EQ(allocator_name("/v/polars/_polars_runtime.abi3.so"), "Polars' allocator");
  EXPECT_EQ(allocator_name(kDuckdb), "DuckDB's allocator");
  EXPECT_EQ(allocator_name("/usr/bin/python3.13t"), "CPython's allocator");
  EXPECT_EQ(allocator_name("/l/libmine.so.2"), "the allocator in libmine.so.2");
  EXPECT_EQ(allocator_name(kProgram), "the own allocator of server");
  EXPECT_EQ(allocator_name("/v/lib/python3.11/site-packages/deltalake/_internal.abi3.so"),
            "the allocator in deltalake/_internal.abi3.so");
}

TEST(UnsplitMemory, IsAnonymousMemoryThatTheyMapped) {
  RecordingAccount recording;
  const StackId arrow = literal::native_stack(recording.stacks, {{"_mi_prim_alloc", kArrow}, {"load", kProgram}});
  const StackId own = literal::native_stack(recording.stacks, {{"load", kProgram}});
  ProcessAccount process = literal::python_process(10, {"prog"});
  process.accounts = {
      literal::walk(1, {{Cause::anonymous, 30, arrow}, {Cause::anonymous, 20, own}, {Cause::lazy_free, 5, arrow}})};
  process.accounts[0].slices.pack();
  recording.processes = {process};
  set_apart_unsplit(recording, {});
  const SliceList& slices = recording.processes[0].accounts[0].slices;
  EXPECT_EQ(slices.sum_of(Cause::heap_unsplit).bytes, 30 * kMiB);
  EXPECT_EQ(slices.sum_of(Cause::anonymous).bytes, 20 * kMiB);
  EXPECT_EQ(slices.sum_of(Cause::lazy_free).bytes, 5 * kMiB);
  EXPECT_EQ(slices.size(), 3U);
}

// As of a Rust program that was stripped: its own mappings are made elsewhere, or without MAP_NORESERVE.
TEST(UnsplitMemory, IsKnownByWhatAStrippedFileHolds) {
  RecordingAccount recording;
  const StackId reserves = literal::native_stack(recording.stacks, {{"", kProgram}, {"", kProgram}});
  const StackId maps = literal::native_stack(recording.stacks, {{"map_table", kProgram}, {"", kProgram}});
  const StackId elsewhere = literal::native_stack(recording.stacks, {{"", kDuckdb}});
  recording.allocator_stacks = {reserves, elsewhere};
  ProcessAccount process = literal::python_process(10, {"prog"});
  process.accounts = {literal::walk(
      1, {{Cause::anonymous, 30, reserves}, {Cause::anonymous, 20, maps}, {Cause::anonymous, 5, elsewhere}})};
  process.accounts[0].slices.pack();
  recording.processes = {process};
  NameTable names;
  names[recording.stacks[recording.stacks[recording.stacks[reserves].front()].module]].allocator = "jemalloc";
  set_apart_unsplit(recording, names);
  EXPECT_EQ(recording.processes[0].accounts[0].slices.sum_of(Cause::heap_unsplit).bytes, 30 * kMiB);
  const auto found = allocator_that_mapped(recording.stacks, reserves);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, "jemalloc");
}

}  // namespace
}  // namespace whyrss::unsplit_memory_test
