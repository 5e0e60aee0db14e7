#!/bin/bash
# Docker or Podman, an image without whyrss: `env --for docker` prints the options that mount it, and a folder for recordings.
set -eu
mkdir -p out
eval "docker run --rm -v '$PWD:/app:ro' $(whyrss env --for docker -o "$PWD/out/job-%h") ${IMAGE:=python:3.11-slim} python3 /app/train.py 60"
whyrss report out/job-*
#> 60 batches
#>   info     62 MiB live Python objects (made at train.py:9 in load_batch)
#> incomplete: its collector ended with its container (...)
