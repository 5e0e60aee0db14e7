#!/bin/bash
# Docker or Podman, whyrss in the image: its portable folder is copied there, and record is the entry point.
set -eu
mkdir -p out
whyrss_folder=$(dirname "$(dirname "$(readlink -f "$(command -v whyrss)")")")
mkdir -p image && cp -r "$whyrss_folder/bin" "$whyrss_folder/lib" train.py image
cat >image/Dockerfile <<END
FROM ${IMAGE:=python:3.11-slim}
COPY bin/whyrss /opt/whyrss/bin/
COPY lib/libwhyrss.so /opt/whyrss/lib/
COPY train.py /app/
ENTRYPOINT ["/opt/whyrss/bin/whyrss", "record", "-o", "/out/job", "--"]
END
docker build -q -t train-with-whyrss image
docker run --rm -v "$PWD/out:/out" train-with-whyrss python3 /app/train.py 60
#> 60 batches
#>   info     62 MiB live Python objects (made at train.py:9 in load_batch)
#> whyrss: next: whyrss report /out/job
