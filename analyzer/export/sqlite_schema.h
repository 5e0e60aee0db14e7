// The database of `whyrss export --format sqlite`. A change of a table or column raises user_version.
#pragma once

namespace whyrss {

inline constexpr const char* kSqliteSchema = R"(
PRAGMA user_version = 1;
CREATE TABLE recording (path TEXT, host TEXT, command TEXT, started TEXT, duration_s REAL, mode TEXT,
  complete INTEGER, incomplete_why TEXT, lost_events INTEGER, lost_snapshots INTEGER,
  from_s REAL, to_s REAL, whyrss TEXT);
CREATE TABLE process (process_id INTEGER PRIMARY KEY, pid INTEGER, parent INTEGER, born_s REAL, ended_s REAL,
  command TEXT, exe TEXT, python TEXT, allocator TEXT,
  rss_first INTEGER, rss_last INTEGER, rss_peak INTEGER, rss_high_water INTEGER);
CREATE TABLE cause (cause TEXT PRIMARY KEY, title TEXT, comes_back_when TEXT);
CREATE TABLE frame (frame_id INTEGER PRIMARY KEY, kind TEXT, function TEXT, file TEXT, line INTEGER,
  module TEXT, address INTEGER);
CREATE TABLE stack_frame (stack_id INTEGER, depth INTEGER, frame_id INTEGER,
  PRIMARY KEY (stack_id, depth)) WITHOUT ROWID;
CREATE TABLE site (site_id INTEGER PRIMARY KEY, process_id INTEGER, cause TEXT, mapping TEXT, stack_id INTEGER,
  code_line TEXT, function TEXT, file TEXT, line INTEGER,
  resident INTEGER, growth INTEGER, at_peak INTEGER, standard_error INTEGER);
CREATE TABLE snapshot (process_id INTEGER, time_s REAL, rss INTEGER, estimate INTEGER);
CREATE TABLE snapshot_cause (process_id INTEGER, time_s REAL, cause TEXT, bytes INTEGER);
CREATE TABLE poll (process_id INTEGER, time_s REAL, rss INTEGER);
CREATE TABLE phase (name TEXT, from_s REAL, to_s REAL);
CREATE TABLE mark (name TEXT, at_s REAL);
CREATE TABLE note (process_id INTEGER, text TEXT);
CREATE VIEW stack AS SELECT stack_id, group_concat(called, ' > ') AS calls FROM (
  SELECT stack_id, function || CASE WHEN line > 0 THEN ' (' || file || ':' || line || ')' ELSE '' END AS called
  FROM stack_frame JOIN frame USING (frame_id) ORDER BY stack_id, depth DESC) GROUP BY stack_id;
CREATE VIEW cause_total AS SELECT pid, process_id, cause, sum(resident) AS resident, sum(growth) AS growth,
  sum(at_peak) AS at_peak FROM site JOIN process USING (process_id) GROUP BY process_id, cause;
CREATE VIEW line_total AS SELECT CASE code_line WHEN '' THEN mapping ELSE code_line END AS line, file, cause,
  count(DISTINCT process_id) AS processes, sum(resident) AS resident, sum(growth) AS growth,
  sum(at_peak) AS at_peak FROM site GROUP BY 1, file, cause ORDER BY growth DESC;
)";

}  // namespace whyrss
