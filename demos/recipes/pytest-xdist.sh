#!/bin/bash
# pytest with two workers of pytest-xdist: after whose test did they hold more, and which line keeps it?
set -eu
python3 -m pytest -q -p no:cacheprovider -p xdist -n 2 -p whyrss_pytest --whyrss --whyrss-output tests.whyrss test_cache.py
whyrss report tests.whyrss
#>    +20 MiB  test_cache.py::test_fills_the_cache[...]
#>             info: 20 MiB live Python objects (made at test_cache.py:14 in test_fills_the_cache)
#> 10 passed in ...
