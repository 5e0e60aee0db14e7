#include "cli/examples.h"

#include <algorithm>
#include <array>

namespace whyrss {
namespace {

struct Examples {
  std::string_view verb, lines;
};

constexpr std::array<Examples, 12> kExamples{{
    {"record",
     "  whyrss record -- python3 train.py\n"
     "  whyrss record -o job.whyrss --memory-max 2GiB -- ./server --port 80\n"
     "  whyrss record --mode exact --metrics :9464 -- make -j8\n"},
    {"report",
     "  whyrss report whyrss-python3-20119\n"
     "  whyrss report job.whyrss --from 'epoch 1' --to 'epoch 1' --stacks\n"
     "  whyrss report job.whyrss --format json -o job.json \\\n"
     "      --fail-if 'heap_live > 1GiB'\n"},
    {"html",
     "  whyrss html whyrss-python3-20119\n"
     "  whyrss html job.whyrss -o job.html\n"},
    {"top",
     "  whyrss top 20119\n"
     "  whyrss top -- python3 train.py\n"
     "  whyrss top --interval 10 -o job.whyrss -- ./server --port 80\n"},
    {"diff",
     "  whyrss diff before.whyrss after.whyrss --fail-if 'heap_live > +10%'\n"
     "  whyrss diff job.whyrss --phases 'epoch 1' 'epoch 2'\n"
     "  whyrss diff before.whyrss after.whyrss --format html -o diff.html\n"},
    {"export",
     "  whyrss export job.whyrss --format pprof -o job.pb.gz\n"
     "  whyrss export job.whyrss --format collapsed --value growth \\\n"
     "      | flamegraph.pl > job.svg\n"},
    {"reduce",
     "  whyrss reduce /scratch/rec/* -o node1.part\n"
     "  whyrss reduce job.whyrss -o node1.part --nodes 'node[001-576]'\n"},
    {"merge",
     "  whyrss merge *.part -o job.whyrss-job\n"
     "  whyrss merge a.part b.whyrss -o job.whyrss-job --skip-damaged\n"},
    {"compare-allocators",
     "  whyrss compare-allocators -- python3 train.py\n"
     "  whyrss compare-allocators -a glibc,jemalloc --repeat 5 \\\n"
     "      -- ./server --selftest\n"
     "  whyrss compare-allocators -a glibc -a 'glibc:MALLOC_ARENA_MAX=2' \\\n"
     "      -- ./server --selftest\n"},
    {"prove",
     "  whyrss prove 20119\n"
     "  whyrss prove --tree 20119\n"
     "  whyrss prove --yes --memory-max 256MiB job.whyrss\n"},
    {"doctor",
     "  whyrss doctor\n"
     "  whyrss doctor -- python3 train.py\n"},
    {"env",
     "  eval \"$(whyrss env -o /tmp/job.whyrss)\"\n"
     "  eval \"srun $(whyrss env --for slurm -o '/scratch/%h-%j') \\\n"
     "      python3 train.py\"\n"},
}};

}  // namespace

std::string examples_of(std::string_view verb) {
  const auto* found = std::ranges::find(kExamples, verb, &Examples::verb);
  return found == kExamples.end() ? "" : "Examples:\n" + std::string(found->lines);
}

}  // namespace whyrss
