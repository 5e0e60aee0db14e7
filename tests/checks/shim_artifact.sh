#!/bin/bash
# Checks the built library: what it needs, what it exports, how much static TLS it takes, and that it
# calls nothing by a name that the program may define itself.   shim_artifact.sh LIBRARY
set -euo pipefail
library=$1
here=$(cd "$(dirname "$0")" && pwd)
failed=0

complain() {
  echo "shim_artifact: $1"
  failed=1
}

needed=$(readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^ld-linux' | sort)
[[ $needed == libc.so.6 ]] || complain "NEEDED is not libc.so.6 alone: $needed"

expected=$(sed -n 's/^    \([A-Za-z_0-9]*\);$/\1/p' "$here/../../shim/exports.map" | sort)
exported=$(nm -D --defined-only "$library" | awk '{print $3}' | sort)
difference=$(diff <(echo "$expected") <(echo "$exported")) || complain "exports differ from exports.map:
$difference"

tls_bytes=$(readelf -lW "$library" | awk '$1 == "TLS" {print $6}')
tls_bytes=${tls_bytes:+$((tls_bytes))}
[[ -n $tls_bytes && $tls_bytes -lt 512 ]] || complain "static TLS is ${tls_bytes:-missing}, want less than 512 bytes"
readelf -rW "$library" | grep -qE 'DTPMOD64|TLSDESC' && complain "dynamic TLS relocations: accesses are not initial-exec"
readelf -dW "$library" | grep -q TEXTREL && complain "text relocations"

# Whatever is imported by name may be the program's own. shim/README.md says why each of these may.
allowed='__environ|environ|_environ|_r_debug|malloc_usable_size|__cxa_finalize|__gmon_start__'
allowed+='|_ITM_deregisterTMCloneTable|_ITM_registerTMCloneTable'
imported=$(nm -D --undefined-only "$library" | awk '{print $2}' | sed 's/@.*//' | grep -vxE "$allowed" || true)
[[ -z $imported ]] || complain "imports that the program could replace (shim/sys/libc_calls.cc): $imported"

# The highest symbol version decides on which systems it loads; any other name would be of another library.
floor=GLIBC_2.17
for version in $(readelf -VW "$library" | sed -n 's/.*Name: \([A-Z][A-Z_]*_[0-9.]*\) .*/\1/p' | sort -u); do
  [[ $version == GLIBC_* && $(printf '%s\n' "$version" "$floor" | sort -V | tail -n 1) == "$floor" ]] ||
    complain "needs $version, newer than $floor"
done
# Relative relocations packed as glibc 2.36 reads them are passed over by an older one, silently.
readelf -dW "$library" | grep -q '(RELR)' && complain "packed relocations: glibc 2.36"

exit "$failed"
