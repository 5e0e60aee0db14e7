#!/bin/bash
# OpenMPI: each rank records itself (%r), and one report shows them side by side. Over several nodes each runs reduce.
set -eu
mpirun --oversubscribe --allow-run-as-root -n 4 whyrss record -q -o rec/%h-%r -- python3 rank.py
whyrss reduce rec/* -o node.part
whyrss merge node.part -o job.whyrss-job
whyrss report job.whyrss-job
#> job.whyrss-job: 4 ranks on 1 node, 4 processes in 4 recordings, from ...
#>   warning  rank 3 of 4 holds ... times the median: rank.py:12 in load (...
