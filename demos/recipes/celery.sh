#!/bin/bash
# A Celery worker with a prefork pool: which task makes the pool grow? SIGTERM to record is the warm shutdown of Celery.
set -eu
mkdir -p queue results
whyrss record -q -o worker.whyrss -- python3 -m celery -A tasks worker --pool prefork --concurrency 2 --loglevel ERROR &
python3 send_tasks.py 60
kill -TERM $!
wait $! || echo "the worker ended with $?"
whyrss report worker.whyrss
#> sum of the results: 1770
#>   info     ... MiB live Python objects (made at tasks.py:11 in parse)...
