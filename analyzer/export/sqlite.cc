// A SQLite database with the sites, processes, snapshots and phases of a recording (sqlite_schema.h).
#include <fmt/format.h>
#include <sqlite3.h>

#include <cmath>
#include <memory>
#include <optional>
#include <unordered_set>

#include "export/export_format.h"
#include "export/sqlite_schema.h"
#include "report/view/blame.h"
#include "report/wording/format.h"
#include "support/result.h"
#include "support/text.h"
#include "support/version.h"

namespace whyrss {
namespace {

// In memory: the caller gets its bytes.
class Database {
 public:
  Database() {
    sqlite3* opened = nullptr;
    require(sqlite3_open(":memory:", &opened) == SQLITE_OK, "sqlite cannot open a database in memory");
    handle_.reset(opened);
  }

  void run(const char* sql) const {
    require(sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK, "sqlite refuses a statement");
  }

  void write_to(const ByteSink& write) const {
    sqlite3_int64 size = 0;
    const std::unique_ptr<unsigned char, void (*)(void*)> bytes(sqlite3_serialize(handle_.get(), "main", &size, 0),
                                                                sqlite3_free);
    if (bytes == nullptr) throw std::bad_alloc();
    write({reinterpret_cast<const char*>(bytes.get()), static_cast<std::size_t>(size)});  // NOLINT: bytes
  }

  [[nodiscard]] sqlite3* handle() const { return handle_.get(); }

 private:
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_{nullptr, sqlite3_close};
};

// INSERT of as many values as its table has columns.
class Insert {
 public:
  Insert(const Database& database, std::string_view table, int columns) : statement_(nullptr, sqlite3_finalize) {
    std::string marks = "?";
    for (int i = 1; i < columns; ++i) marks += ",?";
    sqlite3_stmt* made = nullptr;
    const std::string sql = fmt::format("INSERT INTO {} VALUES ({})", table, marks);
    require(sqlite3_prepare_v2(database.handle(), sql.c_str(), -1, &made, nullptr) == SQLITE_OK,
            "sqlite refuses an INSERT");
    statement_.reset(made);
  }

  template <typename... Values>
  void operator()(const Values&... values) {
    int column = 0;
    (bind(++column, values), ...);
    require(sqlite3_step(statement_.get()) == SQLITE_DONE, "sqlite cannot insert a row");
    sqlite3_reset(statement_.get());
    sqlite3_clear_bindings(statement_.get());
  }

 private:
  void bind(int column, std::int64_t value) { done(sqlite3_bind_int64(statement_.get(), column, value)); }
  void bind(int column, double value) { done(sqlite3_bind_double(statement_.get(), column, value)); }
  void bind(int column, const std::string& raw) {
    const std::string text = printable(raw);
    done(sqlite3_bind_text64(statement_.get(), column, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  }
  template <typename T>
  void bind(int column, const std::optional<T>& value) {
    if (value) bind(column, *value);  // else NULL, as after a reset
  }
  static void done(int status) { require(status == SQLITE_OK, "sqlite cannot bind a value"); }

  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement_;
};

std::int64_t number(bool value) { return value ? 1 : 0; }
std::int64_t number(std::uint64_t value) { return static_cast<std::int64_t>(value); }

std::optional<std::int64_t> known(const ProcessView& process, std::int64_t value) {
  return process.walked ? std::optional(value) : std::nullopt;
}

void add_recording(const Database& database, const View& view) {
  const RecordingInfo& info = view.recording->info;
  Insert(database, "recording", 13)(info.path, info.host, join(info.command, " "), info.started, info.duration_s,
                                    info.mode, number(info.complete), info.incomplete_why, number(info.lost_events),
                                    number(info.lost_snapshots), view.interval.from_s, view.interval.to_s,
                                    std::string(kVersion));
  Insert phase(database, "phase", 3), mark(database, "mark", 2), note(database, "note", 2), cause(database, "cause", 3);
  for (const Phase& one : view.recording->phases) phase(one.name, one.from_s, one.to_s);
  for (const Mark& one : view.recording->marks) mark(one.name, one.at_s);
  for (const std::string& text : info.notes) note(std::optional<std::int64_t>{}, text);
  for (const CauseInfo& one : kCauses)
    cause(std::string(one.slug), std::string(one.title), std::string(one.comes_back));
}

void add_processes(const Database& database, const View& view) {
  Insert insert(database, "process", 13), note(database, "note", 2), poll(database, "poll", 3),
      snapshot(database, "snapshot", 4), snapshot_cause(database, "snapshot_cause", 4);
  std::int64_t id = 0;
  for (const ProcessView& process : view.processes) {
    ++id;
    const ProcessAccount& account = *process.account;
    const auto parent = account.parent ? std::optional<std::int64_t>(*account.parent) : std::nullopt;
    insert(id, std::int64_t{account.pid}, parent, account.born_s, account.ended_s, join(account.command, " "),
           account.exe, account.python, account.allocator, known(process, process.rss.first),
           known(process, process.rss.last), known(process, process.rss.peak),
           account.high_water_bytes > 0 ? std::optional(account.high_water_bytes) : std::nullopt);
    for (const std::string& text : account.notes) note(id, text);
    for (const RssPoint& point : account.polls)
      if (point.time_s >= process.interval.from_s && point.time_s <= process.interval.to_s)
        poll(id, point.time_s, point.rss_bytes);
    for (const CauseMoment& moment : cause_moments(process)) {
      snapshot(id, moment.time_s, moment.rss_bytes, number(moment.is_estimate));
      for (const CauseInfo& cause : kCauses)
        if (const std::int64_t bytes = moment.bytes.at(static_cast<std::size_t>(cause.cause)); bytes != 0)
          snapshot_cause(id, moment.time_s, std::string(cause.slug), bytes);
    }
  }
}

// Frames and stacks that sites refer to.
class Stacks {
 public:
  Stacks(const Database& database, const StackTable& stacks)
      : stacks_(stacks), insert_(database, "stack_frame", 3), frame_(database, "frame", 7) {}

  void add(StackId stack) {
    if (!added_.insert(stack).second) return;
    std::int64_t depth = 0;
    for (const FrameId id : stacks_[stack]) {
      insert_(static_cast<std::int64_t>(stack), depth++, static_cast<std::int64_t>(id));
      add(id);
    }
  }

 private:
  void add(FrameId id) {
    if (!added_frames_.insert(id).second) return;
    const Frame& frame = stacks_[id];
    const ExportFrame shown = export_frame(stacks_, id);
    const bool is_native = frame.kind == FrameKind::native;
    frame_(static_cast<std::int64_t>(id), std::string(is_native ? "native" : "python"), shown.function, shown.file,
           std::int64_t{shown.line}, stacks_[frame.module].path, static_cast<std::int64_t>(frame.address));
  }

  const StackTable& stacks_;
  Insert insert_, frame_;
  std::unordered_set<StackId> added_;
  std::unordered_set<FrameId> added_frames_;
};

void add_sites(const Database& database, const View& view) {
  const StackTable& table = view.recording->stacks;
  Stacks stacks(database, table);
  Insert insert(database, "site", 13);
  std::int64_t id = 0;
  for (const ExportRow& row : export_rows(view)) {
    const SiteView& site = *row.site;
    const Frame* blamed = blamed_frame(table, site.stack);
    stacks.add(site.stack);
    insert(++id, static_cast<std::int64_t>(row.process - view.processes.data()) + 1, slug_of(row.cause->cause),
           site.mapping(), static_cast<std::int64_t>(site.stack), code_line(table, blamed),
           blamed == nullptr ? "" : blamed->function, blamed == nullptr ? "" : blamed->file,
           std::int64_t{blamed == nullptr ? 0 : blamed->line}, site.resident, site.growth, site.at_peak,
           static_cast<std::int64_t>(std::llround(std::sqrt(site.variance))));
  }
}

}  // namespace

std::vector<std::string> write_sqlite(const ExportRequest& request, const ByteSink& write) {
  const Database database;
  database.run(kSqliteSchema);
  database.run("BEGIN");
  add_recording(database, *request.view);
  add_processes(database, *request.view);
  add_sites(database, *request.view);
  database.run("COMMIT");
  database.write_to(write);
  return {};
}

}  // namespace whyrss
