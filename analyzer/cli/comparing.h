// The work of `compare-allocators`: rounds of runs under each allocator, then what their recordings say.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/allocators.h"
#include "cli/compare_command.h"
#include "cli/compare_runs.h"
#include "report/compare/compare.h"

namespace whyrss {

// Where the recordings lie: --keep, or a directory that goes when this does.
class Workplace {
 public:
  static Result<Workplace> make(const std::string& keep);
  Workplace(Workplace&& other) noexcept
      : temporary_(std::exchange(other.temporary_, "")), recordings_(std::move(other.recordings_)) {}
  Workplace& operator=(Workplace&&) = delete;
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace();

  [[nodiscard]] std::string recording(const std::string& name) const { return recordings_ + "/" + name + ".whyrss"; }
  [[nodiscard]] std::string error_output() const { return temporary_ + "/stderr"; }

 private:
  Workplace(std::string temporary, std::string recordings)
      : temporary_(std::move(temporary)), recordings_(std::move(recordings)) {}
  std::string temporary_, recordings_;
};

// One allocator with its settings, and the recordings of its runs.
struct Entrant {
  Contestant contestant;
  std::string name;                     // of its recordings
  std::vector<std::string> recordings;  // of the runs that made one
  bool may_be_tuned = false;            // its thrifty settings join when it keeps much
};

class Comparing {
 public:
  Comparing(const CompareOptions& options, const Workplace& workplace) : options_(options), workplace_(workplace) {
    comparison_.command = options.command;
  }

  // All of it. The signal that ended it, or 0.
  int run();
  // Afterwards: what was found.
  Comparison take() { return std::move(comparison_); }

 private:
  void find_entrants();
  void add_entrant(const FoundAllocator& found, const AllocatorChoice& choice, bool may_be_tuned);
  void run_once(Runner& runner, Entrant& entrant, int round);
  void run_bare(Runner& runner, const RunPlan& plan, Entrant& entrant, int round);
  void run_recorded(Runner& runner, const RunPlan& plan, Entrant& entrant, int round);
  void add_settings(Runner& runner);
  void run_trim(Runner& runner);
  void note_failure(const Entrant& entrant, const char* way, int round, const RunResult& result);
  void progress(const std::string& text);
  [[nodiscard]] RunPlan plan_for(const Entrant& entrant) const;
  void read_recordings(Runner& runner);
  void evaluate(Entrant& entrant);

  const CompareOptions& options_;
  const Workplace& workplace_;
  Comparison comparison_;
  std::vector<Entrant> entrants_;
  std::string trim_recording_;
  bool reported_leftovers_ = false, shows_progress_ = false;
  bool names_functions_ = false;  // of recordings: by them allocators inside libraries are known
};

}  // namespace whyrss
