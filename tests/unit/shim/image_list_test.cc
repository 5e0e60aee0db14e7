// The shim's own list of images, for libcs without _dl_find_object, against what that function says here.
#include "shim/stacks/image_list.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "shim/events/own_memory_events.h"

namespace whyrss::shim {

// The shim reports its tables to the trace; here there is none.
void report_own_memory(ThreadState& /*thread*/, const void* /*memory*/, std::size_t /*size_bytes*/) noexcept {}

namespace {

// First and last byte of each executable segment.
std::vector<std::uint64_t> code_addresses() {
  std::vector<std::uint64_t> addresses;
  const auto keep = [](dl_phdr_info* image, std::size_t, void* data) {
    auto& kept = *static_cast<std::vector<std::uint64_t>*>(data);
    for (int i = 0; i < image->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = image->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
      kept.push_back(image->dlpi_addr + segment.p_vaddr);
      kept.push_back(image->dlpi_addr + segment.p_vaddr + segment.p_memsz - 1);
    }
    return 0;
  };
  dl_iterate_phdr(keep, &addresses);
  return addresses;
}

void expect_as_libc(std::uint64_t address) {
  dl_find_object expected{};
  ASSERT_EQ(_dl_find_object(reinterpret_cast<void*>(address), &expected), 0);
  const LoadedImage found = find_listed_image(address);
  EXPECT_EQ(found.start, reinterpret_cast<std::uint64_t>(expected.dlfo_map_start));
  EXPECT_EQ(found.end, reinterpret_cast<std::uint64_t>(expected.dlfo_map_end));
  EXPECT_EQ(found.bias, expected.dlfo_link_map->l_addr);
  EXPECT_STREQ(found.path, expected.dlfo_link_map->l_name);
  EXPECT_EQ(found.frame_table, expected.dlfo_eh_frame);
  EXPECT_EQ(found.dynamic, expected.dlfo_link_map->l_ld);
}

struct Plugin {
  explicit Plugin(const char* path) : handle(dlopen(path, RTLD_NOW)) {}
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  ~Plugin() {
    dlclose(handle);
    forget_listed_images();  // as the hook of dlclose does
  }
  [[nodiscard]] std::uint64_t code() const {
    return reinterpret_cast<std::uint64_t>(dlsym(handle, "call_through_frame"));
  }

  void* handle;
};

TEST(ImageList, SaysOfAllImagesWhatLibcSays) {
  const std::vector<std::uint64_t> addresses = code_addresses();
  ASSERT_GE(addresses.size(), 8U);
  for (const std::uint64_t address : addresses) expect_as_libc(address);
}

TEST(ImageList, FindsWhatComesLaterAndForgetsWhatGoes) {
  const auto here = reinterpret_cast<std::uint64_t>(&code_addresses);
  expect_as_libc(here);
  std::uint64_t code = 0;
  {
    const Plugin small(WHYRSS_SMALL_FRAME_PLUGIN);
    code = small.code();
    expect_as_libc(code);
    const Plugin large(WHYRSS_LARGE_FRAME_PLUGIN);
    expect_as_libc(large.code());
    expect_as_libc(here);
  }
  EXPECT_EQ(find_listed_image(code).start, 0U);
  expect_as_libc(here);
}

TEST(ImageList, KnowsNoMemoryWithoutAnImage) {
  void* code = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(code, MAP_FAILED);
  EXPECT_EQ(find_listed_image(reinterpret_cast<std::uint64_t>(code)).start, 0U);
  EXPECT_EQ(find_listed_image(0).start, 0U);
  munmap(code, 4096);
}

TEST(ImageList, ServesThreadsWhileLibrariesComeAndGo) {
  std::atomic<bool> ended{false};
  std::atomic<std::uint64_t> wrong{0}, known{0};
  const auto here = reinterpret_cast<std::uint64_t>(&code_addresses);
  const std::uint64_t bias = find_listed_image(here).bias;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!ended.load()) {
        const LoadedImage found = find_listed_image(here);
        if (found.start == 0) continue;  // another thread was extending the list
        ++known;
        if (found.bias != bias || here < found.start || here >= found.end) ++wrong;
      }
    });
  }
  for (int i = 0; i < 500; ++i) {
    const Plugin plugin(i % 2 == 0 ? WHYRSS_SMALL_FRAME_PLUGIN : WHYRSS_LARGE_FRAME_PLUGIN);
    const LoadedImage found = find_listed_image(plugin.code());
    EXPECT_TRUE(found.start == 0 || (plugin.code() >= found.start && plugin.code() < found.end));
  }
  ended = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_GT(known.load(), 0U);
}

TEST(ImageList, WorksInAForkChild) {
  const pid_t pid = fork();
  if (pid == 0) {
    image_list_after_fork_in_child();
    _exit(find_listed_image(reinterpret_cast<std::uint64_t>(&code_addresses)).start != 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace whyrss::shim
