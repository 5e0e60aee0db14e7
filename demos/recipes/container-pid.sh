#!/bin/bash
# A container in the pid namespace of the host: the collector outlives the container, and the recording is complete.
set -eu
mkdir -p out
eval "docker run --rm --pid host -v '$PWD:/app:ro' $(whyrss env --for docker -o "$PWD/out/job-%h") ${IMAGE:=python:3.11-slim} \
  python3 /app/train.py 60"
whyrss report out/job-*
#> 60 batches
#>   info     62 MiB live Python objects (made at train.py:9 in load_batch)
