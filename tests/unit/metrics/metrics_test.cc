// Live figures: their text, requests of every kind, clients of every kind, and the file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "file_tree.h"
#include "metrics/live_metrics.h"
#include "metrics/metrics_address.h"
#include "metrics/metrics_request.h"
#include "metrics/metrics_text.h"

namespace whyrss::metrics_test {
namespace {

LiveFigures some_figures() {
  LiveFigures figures;
  figures.host = "node1";
  figures.recording = "/tmp/a \"b\"\\c\nd";
  figures.recorded_s = 1.5;
  figures.collector_cpu_s = 0.25;
  figures.seen_processes = 7;
  figures.processes.push_back({.pid = 5, .born_s = 0.1, .label = "\xff\xed\xa0\x80 [5]", .rss_bytes = 4096});
  figures.processes.push_back({.pid = 6, .label = "b [6]", .rss_bytes = 8192, .pss_bytes = 1000});
  figures.processes.back().anon_bytes = 8192;
  return figures;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

const std::string kOfRecording = R"({host="node1",recording="/tmp/a \"b\"\\c?d"})";
const std::string kOf6 = R"({host="node1",recording="/tmp/a \"b\"\\c?d",pid="6",born_s="0.000",process="b [6]"})";

TEST(MetricsText, LabelsAreEscaped) {
  const std::string text = render_metrics(some_figures(), MetricsFormat::prometheus);
  EXPECT_TRUE(has_line(text, "whyrss_rss_bytes" + kOf6 + " 8192")) << text;
  EXPECT_NE(text.find("process=\"???? [5]\"} 4096"), std::string::npos) << text;
}

TEST(MetricsText, WhatCannotBeHadIsAbsent) {
  const std::string text = render_metrics(some_figures(), MetricsFormat::prometheus);
  EXPECT_TRUE(has_line(text, "whyrss_pss_bytes" + kOf6 + " 1000"));
  EXPECT_EQ(text.find("whyrss_pss_bytes" + kOf6), text.rfind("whyrss_pss_bytes{"));  // no other process
  EXPECT_EQ(text.find("whyrss_uss_bytes"), std::string::npos);                       // nor a head without a sample
  EXPECT_EQ(text.find("cgroup"), std::string::npos);
  EXPECT_EQ(text.find("kind=\"file\""), std::string::npos);
  EXPECT_NE(text.find("kind=\"anon\"} 8192"), std::string::npos);
}

TEST(MetricsText, OthersAreSummed) {
  LiveFigures figures = some_figures();
  EXPECT_EQ(render_metrics(figures, MetricsFormat::prometheus).find("\"other\""), std::string::npos);
  figures.others = {.process_count = 3, .rss_bytes = 12345};
  const std::string text = render_metrics(figures, MetricsFormat::prometheus);
  EXPECT_NE(text.find(R"(pid="other",process="other"} 12345)"), std::string::npos) << text;
  EXPECT_EQ(text.find("whyrss_heap_net_bytes"), std::string::npos);
  EXPECT_TRUE(has_line(text, "whyrss_processes" + kOfRecording + " 5"));
  EXPECT_TRUE(has_line(text, "whyrss_other_processes" + kOfRecording + " 3"));
}

TEST(MetricsText, EachFormatNamesCountersItsOwnWay) {
  const std::string classic = render_metrics(some_figures(), MetricsFormat::prometheus);
  const std::string open = render_metrics(some_figures(), MetricsFormat::openmetrics);
  for (const std::string& text : {classic, open}) {
    EXPECT_TRUE(has_line(text, "whyrss_seen_processes_total" + kOfRecording + " 7"));
    EXPECT_TRUE(has_line(text, "whyrss_collector_cpu_seconds_total" + kOfRecording + " 0.250"));
  }
  EXPECT_TRUE(has_line(classic, "# TYPE whyrss_seen_processes_total counter"));
  EXPECT_TRUE(has_line(open, "# TYPE whyrss_seen_processes counter"));
  EXPECT_TRUE(has_line(open, "# UNIT whyrss_rss_bytes bytes"));
  EXPECT_EQ(classic.find("# UNIT"), std::string::npos);
  EXPECT_TRUE(open.ends_with("\n# EOF\n"));
  EXPECT_EQ(classic.find("# EOF"), std::string::npos);
}

TEST(MetricsRequest, WhatIsAsked) {
  const auto status = [](std::string_view bytes) { return parse_metrics_request(bytes).status; };
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
  EXPECT_EQ(status("GET /metrics HTTP/1.0\n\n"), 200);
  EXPECT_EQ(status("GET /metrics?name=x HTTP/1.1\r\n\r\n"), 200);
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), 404);
  EXPECT_EQ(status("GET /metricsx HTTP/1.1\r\n\r\n"), 404);
  EXPECT_EQ(status("POST /metrics HTTP/1.1\r\n\r\n"), 405);
  EXPECT_EQ(status("GET /metrics HTTP/2\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /metrics\r\n\r\n"), 400);
  EXPECT_EQ(status("\r\n"), 400);
  EXPECT_EQ(status("\x16\x03\x01 hello\r\n\r\n"), 400);  // TLS
  EXPECT_EQ(status(""), 0);
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\nHost: a\r\n"), 0);
  EXPECT_EQ(status(std::string(kMostRequestBytes - 1, 'a')), 0);
  EXPECT_EQ(status(std::string(kMostRequestBytes, 'a')), 431);
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\nA: " + std::string(kMostRequestBytes, 'a') + "\r\n\r\n"), 431);
}

TEST(MetricsRequest, FormatAndBody) {
  const auto open = parse_metrics_request(
      "GET /metrics HTTP/1.1\r\naCCept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n");
  EXPECT_EQ(open.format, MetricsFormat::openmetrics);
  EXPECT_NE(render_answer(open, "x").find("Content-Type: application/openmetrics-text; version=1.0.0"),
            std::string::npos);
  const auto head = parse_metrics_request("HEAD /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n");
  EXPECT_EQ(head.format, MetricsFormat::prometheus);
  const std::string answer = render_answer(head, "four");
  EXPECT_NE(answer.find("Content-Length: 4\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
  EXPECT_NE(render_answer({.status = 405}, "secret").find("Allow: GET, HEAD\r\n"), std::string::npos);
  EXPECT_EQ(render_answer({.status = 405}, "secret").find("secret"), std::string::npos);
}

// Every cut and every changed byte of a good request, and noise: an answer or a wait, and no more than that is read.
TEST(MetricsRequest, AnyBytes) {
  const std::string good = "GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\nAccept: text/plain\r\n\r\n";
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_EQ(parse_metrics_request(std::string(good.substr(0, size))).status, 0) << size;
  std::minstd_rand random(7);
  const std::vector<int> known{0, 200, 400, 404, 405, 431};
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = i % 2 == 0 ? good : std::string(random() % 300, '\0');
    for (char& byte : bytes)
      if (i % 2 != 0 || random() % 20 == 0) byte = static_cast<char>(random());
    const int status = parse_metrics_request(bytes).status;
    EXPECT_NE(std::ranges::find(known, status), known.end()) << status;
  }
}

TEST(MetricsAddress, Forms) {
  for (const char* good : {":9464", ":0", "localhost:1", "0.0.0.0:65535", "[::1]:80", "unix:/tmp/x"})
    EXPECT_TRUE(parse_metrics_address(good)) << good;
  for (const char* bad : {"", ":", "9464", ":-1", ":65536", ":9464x", "example.org:1", "1.2.3:4", "::1:80", "[::1]",
                          "[1.2.3.4]:80", "unix:", "http://127.0.0.1:80/"})
    EXPECT_FALSE(parse_metrics_address(bad)) << bad;
  EXPECT_FALSE(parse_metrics_address("unix:/" + std::string(200, 'a')));
}

// A server whose clock the test moves.
class Server : public testing::Test {
 protected:
  void serve() {
    now_ns_ += MetricsServer::kPauseNs;
    server_.serve(now_ns_, [this](MetricsFormat) -> const std::string& {
      ++asked_;
      return text_;
    });
  }
  [[nodiscard]] Fd client() const {
    Fd made(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(made.get(), reinterpret_cast<const sockaddr*>(&address_.address), address_.address_bytes), 0);
    return made;
  }
  // Nothing: it is still open, and all that has come was read; else everything up to its end.
  static std::optional<std::string> read_to_end(const Fd& client) {
    std::string all;
    std::array<char, 4096> bytes;
    while (true) {
      const ssize_t got = read(client.get(), bytes.data(), bytes.size());
      if (got < 0 && errno == EAGAIN) return std::nullopt;
      if (got <= 0) return all;  // closed, also where something was not read
      all.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }
  static void say(const Fd& client, std::string_view text) { ASSERT_TRUE(write_fully(client.get(), text)); }

  FileTree tree_;
  MetricsAddress address_ = *parse_metrics_address("unix:" + tree_.path() + "/s");
  MetricsServer server_ = std::move(*MetricsServer::listen(address_));
  std::string text_ = "figures 1\n";
  std::int64_t now_ns_ = 1'000'000'000;
  int asked_ = 0;
};

const std::string kGet = "GET /metrics HTTP/1.1\r\n\r\n";

TEST_F(Server, ByteByByte) {
  const Fd slow = client();
  for (const char letter : kGet) {
    EXPECT_EQ(read_to_end(slow), std::nullopt);
    say(slow, std::string(1, letter));
    serve();
  }
  EXPECT_TRUE(read_to_end(slow).value_or("").ends_with("\r\n\r\nfigures 1\n"));
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(server_.client_count(), 0U);
}

TEST_F(Server, OneThatSaysNothingIsDropped) {
  const Fd silent = client();
  serve();
  EXPECT_EQ(server_.client_count(), 1U);
  now_ns_ += MetricsServer::kPatienceNs - 2 * MetricsServer::kPauseNs;
  serve();
  EXPECT_EQ(read_to_end(silent), std::nullopt);
  serve();
  serve();
  EXPECT_EQ(read_to_end(silent), "");
  EXPECT_EQ(server_.client_count(), 0U);
}

TEST_F(Server, OneThatDoesNotReadIsDropped) {
  text_ = std::string(8 << 20, 'x');
  const Fd lazy = client();
  say(lazy, kGet);
  serve();
  EXPECT_EQ(server_.client_count(), 1U);
  now_ns_ += MetricsServer::kPatienceNs;
  serve();
  EXPECT_EQ(server_.client_count(), 0U);
  EXPECT_LT(read_to_end(lazy).value_or("").size(), text_.size());
}

TEST_F(Server, OneThatReadsSlowlyEnoughGetsAll) {
  text_ = std::string(8 << 20, 'x');
  const Fd client_fd = client();
  say(client_fd, kGet);
  std::string all;
  std::array<char, 65536> bytes;
  for (int round = 0; round < 400 && server_.client_count() + (all.empty() ? 1U : 0U) > 0; ++round) {
    serve();
    for (ssize_t got = 1; got > 0;) {
      got = read(client_fd.get(), bytes.data(), bytes.size());
      if (got > 0) all.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }
  EXPECT_TRUE(all.ends_with(text_));
}

TEST_F(Server, ManyIdleClientsKeepNobodyOut) {
  std::vector<Fd> idle;
  for (int i = 0; i < 100; ++i) {
    idle.push_back(client());
    serve();
    EXPECT_LE(server_.client_count(), MetricsServer::kMostClients);
  }
  const Fd honest = client();
  say(honest, kGet);
  serve();
  EXPECT_TRUE(read_to_end(honest).value_or("").ends_with("figures 1\n"));
}

// However fast they send: between two rounds nothing is done, and nothing is waited for but the time.
TEST_F(Server, ClientsCannotKeepItBusy) {
  const Fd first = client();
  serve();
  const Fd second = client();
  say(second, kGet);
  std::vector<pollfd> entries;
  EXPECT_EQ(server_.wait_for(entries, now_ns_ + 1), now_ns_ + MetricsServer::kPauseNs);
  EXPECT_TRUE(entries.empty());
  server_.serve(now_ns_ + 1, [](MetricsFormat) -> const std::string& { throw std::logic_error("too early"); });
  EXPECT_EQ(read_to_end(second), std::nullopt);
  serve();
  EXPECT_TRUE(read_to_end(second).value_or("").ends_with("figures 1\n"));
}

TEST_F(Server, TooLargeAndHangUp) {
  const Fd large = client();
  say(large, std::string(kMostRequestBytes, 'a'));
  {
    const Fd gone = client();
    say(gone, "GET /met");
  }
  {
    const Fd gone = client();
    say(gone, kGet);
  }
  serve();
  serve();
  EXPECT_NE(read_to_end(large).value_or("").find(" 431 "), std::string::npos);
  EXPECT_EQ(server_.client_count(), 0U);
}

TEST_F(Server, ASecondOneIsRefusedUntilTheFirstIsGone) {
  const auto second = MetricsServer::listen(address_);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().find("Address already in use"), std::string::npos) << second.error();
  EXPECT_TRUE(std::filesystem::exists(tree_.path() + "/s"));
}

TEST(MetricsServer, WhatAKilledOneLeftIsReplaced) {
  const FileTree tree;
  const std::string path = tree.path() + "/s";
  const auto address = parse_metrics_address("unix:" + path);
  {
    const Fd abandoned(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(abandoned.get(), reinterpret_cast<const sockaddr*>(&address->address), address->address_bytes), 0);
  }
  EXPECT_TRUE(MetricsServer::listen(*address));
  EXPECT_FALSE(std::filesystem::exists(path));
  tree.write("s", "a file of the user");
  EXPECT_FALSE(MetricsServer::listen(*address));
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(MetricsFile, WholeReadableAndGoneAtTheEnd) {
  const FileTree tree;
  const std::string path = tree.path() + "/a.prom";
  {
    MetricsFile file(path, 0640);
    ASSERT_TRUE(file.write("one\n"));
    ASSERT_TRUE(file.write("two\n"));
    struct stat status {};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0640U);
    EXPECT_EQ(*read_file(path), "two\n");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(tree.path()), {}), 1);
  }
  EXPECT_TRUE(std::filesystem::is_empty(tree.path()));
}

TEST(MetricsFile, NothingElseIsReplacedOrRemoved) {
  const FileTree tree;
  tree.write("folder/x", "");
  std::filesystem::create_symlink("folder/x", tree.path() + "/link");
  for (const char* name : {"folder", "link"}) {
    MetricsFile file(tree.path() + "/" + name, 0600);
    const Status written = file.write("text");
    ASSERT_FALSE(written);
    EXPECT_NE(written.error().find("no regular file"), std::string::npos);
  }
  EXPECT_FALSE(MetricsFile("/proc/none/a.prom", 0600).write("text"));
  EXPECT_TRUE(std::filesystem::exists(tree.path() + "/link"));
}

TEST(LiveMetrics, FiguresAreReadOnceASecond) {
  const FileTree tree;
  LiveMetrics metrics = LiveMetrics::open({.address = {}, .file = tree.path() + "/a.prom", .file_mode = 0600});
  EXPECT_TRUE(metrics.faults().empty());
  int reads = 0;
  for (std::int64_t now_ns = 1; now_ns < 3 * LiveMetrics::kFreshNs; now_ns += LiveMetrics::kFreshNs / 10)
    metrics.serve(now_ns, [&] {
      ++reads;
      return some_figures();
    });
  EXPECT_EQ(reads, 3);
  EXPECT_EQ(*read_file(tree.path() + "/a.prom"), render_metrics(some_figures(), MetricsFormat::prometheus));
}

TEST(LiveMetrics, WhatDoesNotWorkIsSaidOnce) {
  const FileTree tree;
  LiveMetrics metrics =
      LiveMetrics::open({.address = "nowhere", .file = tree.path() + "/none/\n.prom", .file_mode = 0600});
  ASSERT_EQ(metrics.faults().size(), 2U);
  EXPECT_EQ(metrics.url(), "");
  for (const std::string& fault : metrics.faults()) EXPECT_EQ(fault.find('\n'), std::string::npos) << fault;
  for (std::int64_t i = 1; i < 5; ++i) metrics.serve(i * LiveMetrics::kFreshNs, some_figures);
  EXPECT_EQ(metrics.faults().size(), 2U);
}

}  // namespace
}  // namespace whyrss::metrics_test
