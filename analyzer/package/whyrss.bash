# bash completion of whyrss: verbs, options and their values as the program's own --help has them.

# _whyrss_help [VERB]: its text, each option in one line
_whyrss_help() {
  COLUMNS=1000 "${COMP_WORDS[0]}" "$@" --help 2>/dev/null
}

# _whyrss_values VERB OPTION: what OPTION may be, "" if anything
_whyrss_values() {
  _whyrss_help "$1" | sed -nE "s/^ +(-[a-z],)?$2 [A-Z]+:\{([^}]*)\}.*/\2/p" | tr ',' ' '
}

_whyrss() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]:-}
  local verbs values
  COMPREPLY=()
  verbs=$(_whyrss_help | sed -nE 's/^  whyrss ([a-z][a-z-]*).*/\1/p')
  if [[ $COMP_CWORD == 1 ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$verbs --help --version" -- "$word"; compgen -c -- "$word")
    return
  fi
  if ! grep -qxF -- "$verb" <<<"$verbs"; then  # whyrss CMD ARGS...
    COMPREPLY=()
    return
  fi
  if [[ $before == --?* ]]; then
    values=$(_whyrss_values "$verb" "$before")
    if [[ -n $values ]]; then
      mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
      return
    fi
  fi
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_whyrss_help "$verb" | grep -oE -- '^ +(-[a-z],)?--[a-z-]+' | grep -oE -- '--[a-z-]+')" -- "$word")
  fi
}
complete -o default -o bashdefault -F _whyrss whyrss
