#!/bin/bash
# gunicorn with preforked workers: which line makes the workers grow? record passes SIGTERM on, and gunicorn ends as ever.
set -eu
whyrss record -q -o web.whyrss -- gunicorn --preload --workers 2 --bind "127.0.0.1:${PORT:=8000}" app:application &
python3 visit.py "$PORT" 400
kill -TERM $!
wait $! || echo "gunicorn ended with $?"
whyrss report web.whyrss
#> 400 answers
#>   info     ... MiB live Python objects (made at app.py:8 in answer)
