# fish completion of whyrss: verbs, options and their values as the program's own --help has them.

# What may stand at the cursor; nothing where that is a file, or a word of the program that is recorded.
function __whyrss_words
    set -l words (commandline -opc)
    set -l program $words[1]
    set -l verbs (env COLUMNS=1000 $program --help 2>/dev/null | string replace -rf '^  whyrss ([a-z][a-z-]*).*' '$1')
    if test (count $words) -eq 1
        printf '%s\n' $verbs
        return
    end
    contains -- $words[2] $verbs; or return
    set -l help (env COLUMNS=1000 $program $words[2] --help 2>/dev/null)
    if string match -q -- '--?*' $words[-1]
        set -l before (string escape --style=regex -- $words[-1])
        set -l values (string replace -rf -- "^ +(-[a-z],)?$before [A-Z]+:\{([^}]*)\}.*" '$2' $help | string split ,)
        if set -q values[1]
            printf '%s\n' $values
            return
        end
    end
    if string match -q -- '-*' (commandline -ct)
        printf '%s\n' (string replace -rf -- '^ +(-[a-z],)?(--[a-z-]+).*' '$2' $help)
    end
end

function __whyrss_has_words
    set -l found (__whyrss_words)
    set -q found[1]
end

complete -c whyrss -n __whyrss_has_words -f -a '(__whyrss_words)'
complete -c whyrss -n __fish_use_subcommand -f -a '(__fish_complete_command)'
