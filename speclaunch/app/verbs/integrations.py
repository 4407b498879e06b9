"""`speclaunch completion` and `speclaunch lsp`: completions in shells, checks in editors."""

from __future__ import annotations

import gc
import sys
from importlib.util import find_spec

from speclaunch.app.verbs.change_options import LspOptions
from speclaunch.app.verbs.options import VerbOptions, required
from speclaunch.core import InputError

_BASH = r"""# bash completion of speclaunch: source it, or save it where bash-completion finds it:
# ~/.local/share/bash-completion/completions/speclaunch

_speclaunch() {
    # bash ends words at `=` and `:`; here `recipe=NAME` is one word, so adjacent pieces are joined.
    local line=${COMP_LINE:0:COMP_POINT} i part
    local -a words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        part=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $line == [!$' \t\n']* ]]; then
            ((i == COMP_CWORD)) && part=$line
            words[-1]+=$part
        else
            line=${line#"${line%%[!$' \t\n']*}"}
            ((i == COMP_CWORD)) && part=$line
            words+=("$part")
        fi
        line=${line#"$part"}
    done
    local current=${words[-1]} program=${words[0]/#\~/$HOME} value
    COMPREPLY=()
    while IFS=$'\t' read -r value _; do
        [[ -n $value ]] && COMPREPLY+=("$value")
    done < <(_SPECLAUNCH_COMPLETE=bash "$program" "${words[@]:1}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace
    # bash replaces only the text after the last `=` or `:` with the answer
    if [[ $current != [\'\"]* ]]; then
        local tail=$current
        [[ $COMP_WORDBREAKS == *=* ]] && tail=${tail##*=}
        [[ $COMP_WORDBREAKS == *:* ]] && tail=${tail##*:}
        local head=${current%"$tail"}
        COMPREPLY=("${COMPREPLY[@]#"$head"}")
    fi
}

complete -o default -F _speclaunch speclaunch
"""

_ZSH = r"""#compdef speclaunch
# zsh completion of speclaunch: save it as _speclaunch in a directory of $fpath, or source it
# after compinit.

_speclaunch() {
    local -a lines full fullsaid part partsaid asked
    local line value said
    asked=("${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}")
    lines=("${(@f)$(_SPECLAUNCH_COMPLETE=zsh ${(Q)~words[1]} "${asked[@]}" 2>/dev/null)}")
    for line in $lines; do
        value=${line%%$'\t'*} said=${line#*$'\t'}
        [[ $said == $value || -z $said ]] && said=$value || said="$value  -- $said"
        if [[ $value == *[=./] ]]; then
            part+=("$value") partsaid+=("$said")
        else
            full+=("$value") fullsaid+=("$said")
        fi
    done
    if (( ! $#full && ! $#part )); then
        _files
        return
    fi
    local -i found=1
    (( $#part )) && compadd -l -S '' -d partsaid -a part && found=0
    (( $#full )) && compadd -l -d fullsaid -a full && found=0
    return found
}

if [[ $funcstack[1] == _speclaunch ]]; then
    _speclaunch "$@"
else
    compdef _speclaunch speclaunch
fi
"""

_FISH = r"""# fish completion of speclaunch: save it as ~/.config/fish/completions/speclaunch.fish.

function __speclaunch_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct | string unescape)
    set -l found (env _SPECLAUNCH_COMPLETE=fish $words "$current" 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path "$current"
    end
end

complete --command speclaunch --no-files --arguments '(__speclaunch_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class CompletionOptions(VerbOptions):
    """The options of `speclaunch completion`."""

    shell = required(str, metavar="SHELL", help="bash, zsh or fish.")


def completion(options: CompletionOptions) -> None:
    """Print the completion script of a shell. Raises InputError."""
    shell = options.shell
    if shell not in SCRIPTS:
        from speclaunch.engine import suggest

        known = f"use one of {', '.join(SCRIPTS)}"
        near = suggest(shell, SCRIPTS)
        raise InputError(f"no completion for {shell!r}", help=f"{near} {known}" if near else known)
    sys.stdout.write(SCRIPTS[shell])


def lsp(options: LspOptions) -> None:  # noqa: ARG001 - it always uses stdio
    """Serve an editor over LSP until it exits. Raises InputError."""
    if find_spec("pygls") is None or find_spec("lsprotocol") is None:
        raise InputError("the language server needs pygls", help="pip install 'speclaunch[lsp]'")
    gc.enable()  # `main` disables it for short commands; the server runs for hours
    from speclaunch.checks import run_and_leave

    run_and_leave()
