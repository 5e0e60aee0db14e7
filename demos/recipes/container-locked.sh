#!/bin/bash
# A container that may do little: no root, a read-only root file system, no capabilities, Docker's default seccomp profile.
# The folder of the recordings is sticky (1777): whyrss records into none that others may write into otherwise.
set -eu
mkdir -p -m 1777 out
eval "docker run --rm --user 1000:1000 --read-only --cap-drop ALL --security-opt no-new-privileges -v '$PWD:/app:ro' \
  $(whyrss env --for docker -o "$PWD/out/job-%h") ${IMAGE:=python:3.11-slim} python3 /app/train.py 60"
whyrss report out/job-*
#> 60 batches
#>   info     62 MiB live Python objects (made at train.py:9 in load_batch)
