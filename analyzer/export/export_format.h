// The formats of `whyrss export`: one row of a table and one file each.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "export/export_view.h"

namespace whyrss {

using ByteSink = std::function<void(std::string_view)>;

struct ExportRequest {
  const View* view = nullptr;
  ExportValue value = ExportValue::resident;  // of formats that hold one figure
};

// Hands the file to the sink in pieces. What it had to leave out, for stderr: one line each.
using ExportWriter = std::vector<std::string> (*)(const ExportRequest&, const ByteSink&);

struct ExportFormat {
  std::string_view name;
  std::string_view read_by;
  bool is_binary;        // not for terminals
  bool holds_one_value;  // which, is asked for
  ExportWriter write;
};

std::span<const ExportFormat> export_formats();
const ExportFormat* find_export_format(std::string_view name);

std::vector<std::string> write_pprof(const ExportRequest& request, const ByteSink& write);
std::vector<std::string> write_collapsed(const ExportRequest& request, const ByteSink& write);
std::vector<std::string> write_speedscope(const ExportRequest& request, const ByteSink& write);
std::vector<std::string> write_csv(const ExportRequest& request, const ByteSink& write);
std::vector<std::string> write_ndjson(const ExportRequest& request, const ByteSink& write);
std::vector<std::string> write_sqlite(const ExportRequest& request, const ByteSink& write);
std::vector<std::string> write_openmetrics(const ExportRequest& request, const ByteSink& write);
std::vector<std::string> write_perfetto(const ExportRequest& request, const ByteSink& write);
std::vector<std::string> write_firefox(const ExportRequest& request, const ByteSink& write);

}  // namespace whyrss
