#include "cli/load_job.h"

#include "job/fold.h"
#include "job/part_file.h"

namespace whyrss {
namespace {

RecordingReader reader_of(const PartFile& part) {
  return [&part](std::size_t entry) { return part.read_recording(entry); };
}

}  // namespace

Result<JobView> load_job(const std::string& path, std::size_t detail_count, Progress& progress) {
  const Result<PartFile> part = PartFile::open(path);
  if (!part) return Error{part.error()};
  return fold_job(path, part->index(), reader_of(*part), detail_count,
                  [&](double done) { progress.at("reading the job", done); });
}

Result<TimedJob> load_timed_job(const std::string& path, Progress& progress) {
  const Result<PartFile> part = PartFile::open(path);
  if (!part) return Error{part.error()};
  Result<JobView> job = fold_job(path, part->index(), reader_of(*part), 0,
                                 [&](double done) { progress.at("reading the job", done / 2); });
  if (!job) return Error{job.error()};
  Result<JobTimeline> timeline = job_timeline(*job, part->index(), reader_of(*part),
                                              [&](double done) { progress.at("reading the job", (1 + done) / 2); });
  if (!timeline) return Error{timeline.error()};
  return TimedJob{std::move(*job), std::move(*timeline)};
}

}  // namespace whyrss
