# Completions of longhaul for bash.

_longhaul() {
    local -a words=()
    local rest="$COMP_LINE" word i
    # Words that nothing separates in the line are one: bash splits at : and = as well.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word="${COMP_WORDS[i]}"
        if ((i > 0)) && [[ -n "$word" && "$rest" == "$word"* ]]; then
            words[${#words[@]} - 1]+="$word"
        else
            words+=("$word")
        fi
        rest="${rest#*"$word"}"
    done
    local current="${words[-1]}" joined=""
    case "$current" in
        *[:=]*) joined="${current%"${current##*[:=]}"}" ;;
    esac
    local IFS=$'\013'
    COMPREPLY=( $( \
        _CLAP_IFS="$IFS" \
        _CLAP_COMPLETE_INDEX="$((${#words[@]} - 1))" \
        VARIABLE=bash \
        longhaul -- "${words[@]}" \
    ) )
    for i in "${!COMPREPLY[@]}"; do
        COMPREPLY[i]="${COMPREPLY[i]#"$joined"}"
    done
    if ((${#COMPREPLY[@]} == 1)) && [[ ! "${COMPREPLY[0]}" =~ [=/:]$ ]]; then
        compopt +o nospace
    fi
}

complete -o nospace -o bashdefault -F _longhaul longhaul
