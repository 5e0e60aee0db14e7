"""Scripts of bash, dash and zsh: pipes, background jobs, traps, exports, descriptors that are opened and closed."""
from harness.host import Host

COMMON = r"""
export WORD=one
WORD=two; export EMPTY=
show() { printf '%s ' "$@"; echo; }
show "$WORD" "$(echo nested $(echo deeper))"
i=0; while [ $i -lt 40 ]; do echo "line $i"; i=$((i+1)); done | sort -r | head -3
( exit 3 ); echo "status $?"
trap 'echo trapped' USR1; kill -USR1 $$
exec 9>file; echo kept >&9; exec 9>&-; cat file
cat <<HERE | tr a-z A-Z
here $WORD
HERE
sleep 0.1 & sleep 0.1 & wait; echo "waited $?"
sh -c 'kill -SEGV $$'; echo "killed $?"
(ulimit -n 64; ulimit -n); unset WORD; echo "unset ${WORD-yes}"
LD_SOMETHING=1 env | grep -c '^LD_SOMETHING'
"$PROBE"; "$PROBE" 5</dev/null
trap 'echo leaving' EXIT
exit 7
"""
BASH_ONLY = r"""
declare -A map=([a]=1 [b]=2); echo "${map[a]}${map[b]}"
mapfile -t lines < <(seq 1 500); echo "${#lines[@]}"
coproc cat; echo through >&"${COPROC[1]}"; read -r back <&"${COPROC[0]}"; echo "$back"
exec {COPROC[1]}>&-; wait
set -o pipefail; false | true; echo "${PIPESTATUS[*]}"
[[ abc =~ ^a(.)c$ ]] && echo "${BASH_REMATCH[1]}"
for n in {1..30}; do x=$(printf '%s' "$n"); done; echo "$x"
"""
ZSH_ONLY = r"""
typeset -A map; map=(a 1 b 2); echo ${map[a]}${map[b]}
print -l ${(o)${(f)"$(seq 1 20)"}} | tail -1
zmodload zsh/mathfunc zsh/datetime; echo $(( int(sqrt(144)) ))
diff <(echo one) =(echo one) && echo alike
"""


def script(shell, name, text, *packages):
    def prepare(scene):
        scene.write("script", f"#!{shell}\n{text}").chmod(0o755)
    return Host(name, lambda scene: [scene.folder / "script"], packages, prepare, ends=7)


def hosts(_options):
    return [
        script("/bin/dash", "shells/dash", COMMON),
        script("/bin/bash", "shells/bash", BASH_ONLY + COMMON),
        script("/usr/bin/zsh", "shells/zsh", ZSH_ONLY + COMMON, "zsh"),
        Host("shells/bash-short", lambda _: ["/bin/bash", "-c", "echo hi"], files_at_exec=False),
        Host("shells/bash-commands", lambda _: ["/bin/bash", "-c", "for i in {1..100}; do /bin/true $i; done; echo done"],
             files_at_exec=False),
    ]
