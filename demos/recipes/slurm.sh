#!/bin/bash
# Slurm, to be started by `sbatch slurm.sh`: a recording for each node, reduced there to a part, and one report of the job.
# A task that is killed, rank 1 here, takes nothing along.
#SBATCH --nodes=2 --ntasks-per-node=2
set -eu
mkdir -p rec
status=0
eval "srun $(whyrss env --for slurm -o "$PWD/rec/%h-%j") python3 rank.py" || status=$?
echo "srun ended with $status"
srun --ntasks-per-node=1 --ntasks=2 sh -c 'whyrss reduce rec/"$(hostname)"-* -o "rec/$SLURM_NODEID.part"'
whyrss merge rec/*.part -o job.whyrss-job
whyrss report job.whyrss-job
#> srun ended with 137
#> job ...: 4 ranks on 2 nodes, 4 processes in 2 recordings, from ...
#>   warning  rank 3 of 4 holds ... times the median: rank.py:12 in load (...
