#!/bin/bash
# A container that the kernel kills at its memory limit: the recording is outside of it, and says what filled the limit.
set -eu
mkdir -p out
status=0
eval "docker run --rm --memory 100m -v '$PWD:/app:ro' $(whyrss env --for docker -o "$PWD/out/job-%h") ${IMAGE:=python:3.11-slim} \
  python3 /app/train.py 400" || status=$?
echo "the container ended with $status"
whyrss report out/job-*
#> the container ended with 137
#>   warning  ended unseen, and so did whyrss's collector: as when a whole job or container is killed
#>            (limit 100 MiB, ...; held most by 92 MiB live heap (train.py:9 in
