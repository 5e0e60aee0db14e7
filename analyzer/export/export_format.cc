#include "export/export_format.h"

#include <algorithm>
#include <array>

namespace whyrss {
namespace {

constexpr bool kBinary = true, kText = false, kOneValue = true, kAllValues = false;

constexpr auto kFormats = std::to_array<ExportFormat>({
    {"pprof", "go tool pprof, speedscope, Pyroscope, Parca", kBinary, kAllValues, write_pprof},
    {"collapsed", "flamegraph.pl, inferno, speedscope", kText, kOneValue, write_collapsed},
    {"speedscope", "speedscope.app", kText, kAllValues, write_speedscope},
    {"csv", "spreadsheets, pandas", kText, kAllValues, write_csv},
    {"ndjson", "DuckDB, ClickHouse, jq; compressed by zstd", kBinary, kAllValues, write_ndjson},
    {"sqlite", "sqlite3, pandas, Datasette, Grafana", kBinary, kAllValues, write_sqlite},
    {"openmetrics", "Prometheus, VictoriaMetrics: causes over time", kText, kAllValues, write_openmetrics},
    {"perfetto", "ui.perfetto.dev: causes over time, and stacks", kBinary, kOneValue, write_perfetto},
    {"firefox", "profiler.firefox.com", kText, kOneValue, write_firefox},
});

}  // namespace

std::span<const ExportFormat> export_formats() { return kFormats; }

const ExportFormat* find_export_format(std::string_view name) {
  const auto* const found = std::ranges::find(kFormats, name, &ExportFormat::name);
  return found == kFormats.end() ? nullptr : found;
}

}  // namespace whyrss
