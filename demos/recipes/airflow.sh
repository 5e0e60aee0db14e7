#!/bin/bash
# Tasks that a scheduler starts below worker processes and shells, as Airflow does: which one needs the memory?
set -eu
( eval "$(whyrss env -o "$PWD/tasks.whyrss")"; exec python3 scheduler.py )
whyrss report tasks.whyrss
#> task transform: exit status 3
#>   info     101 MiB live Python objects (made at transform.py:7 in keep_rows.<locals>.<listcomp>)
