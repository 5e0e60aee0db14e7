#!/bin/bash
# uvicorn workers of gunicorn: which line makes the workers grow? Here the environment records, not the command line.
set -eu
(
  eval "$(whyrss env -o "$PWD/web.whyrss")"
  exec gunicorn --worker-class uvicorn.workers.UvicornWorker --workers 2 --bind "127.0.0.1:${PORT:=8000}" app:asgi
) &
python3 visit.py "${PORT:=8000}" 400
kill -TERM $!
wait $! || echo "gunicorn ended with $?"
whyrss report web.whyrss
#> 400 answers
#>   info     ... MiB live Python objects (made at app.py:8 in answer)
