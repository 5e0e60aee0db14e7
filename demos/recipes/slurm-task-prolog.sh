#!/bin/bash
# Slurm, for jobs whose commands cannot change: TaskProlog= of slurm.conf, or `srun --task-prolog=slurm-task-prolog.sh CMD`.
# Slurm takes what a prolog prints into the environment of the task, without a shell: no quotes.
eval "$(whyrss env -o "$PWD/rec/%h-%j")"
echo "export LD_PRELOAD=$LD_PRELOAD"
echo "export WHYRSS_OUTPUT=$WHYRSS_OUTPUT"
#> export WHYRSS_OUTPUT=...rec/%h-%j
