"""A shell whose state is a file in the sandbox: each command runs in a new bash, which loads and saves that file.

Working directory, variables, functions, aliases, options and the last exit code go from command to command. A command
that is killed for its timeout leaves the state before it. What a live process would have beside that is not kept: jobs
(they run on), traps, open files, `set -e`. In return a shell survives whatever its container does: restarts, sleep, a
restored session.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import join

_SYNTAX = "swerex-syntax:"
_KEEP = r"""
__rex_keep() {
  exec >"$__rex_state.new" 2>/dev/null
  printf '__rex_code=%d\n' "$1"
  printf 'builtin cd -- %q\n' "$PWD"
  printf 'umask %s\n' "$(umask)"
  shopt -p | while read -r __rex_line; do
    case $__rex_line in *login_shell | *restricted_shell | *expand_aliases) ;; *) printf '%s\n' "$__rex_line" ;; esac
  done
  printf '__rex_options="'
  for __rex_name in allexport noclobber noglob nounset physical pipefail xtrace; do
    case :$SHELLOPTS: in *:$__rex_name:*) printf 'set -o %s; ' "$__rex_name" ;; esac
  done
  printf '"\n'
  set +u
  compgen -v | while IFS= read -r __rex_name; do
    case $__rex_name in
      BASH* | COMP_* | DIRSTACK | EPOCH* | EUID | FUNCNAME | GROUPS | HISTCMD | LINENO | PIPESTATUS | PPID) ;;
      RANDOM | SECONDS | SHELLOPTS | SHLVL | SRANDOM | UID | _ | __rex_* | __sb*) ;;
      *) declare -p "$__rex_name" ;;
    esac
  done
  (unset -f __rex_keep; declare -f; declare -Fx)
  alias -p
  command -p mv -f "$__rex_state.new" "$__rex_state"
}
"""
_START = (
    r"""
exec 2>&1
__rex_state=$1
shift
"""
    + _KEEP
    + r"""
for __rex_file; do . "$__rex_file"; done
__rex_keep 0
"""
)
_BEFORE = (
    r"""
IFS= read -r -d '' __rex_command
exec </dev/null
if ! __rex_said=$(bash -O extglob -n <<<"$__rex_command" 2>&1); then
  printf '%s%s' '@SYNTAX@' "$__rex_said" >&2
  exit 2
fi
__rex_state=$2 __rex_options= __rex_code=0
set --
if [ -r "$__rex_state" ]; then
  for __rex_name in $(compgen -e); do
    case $__rex_name in __sb*) ;; *) unset "$__rex_name" ;; esac
  done
  . "$__rex_state" 2>/dev/null
fi
""".replace("@SYNTAX@", _SYNTAX)
    + _KEEP
    + r"""
shopt -s expand_aliases
trap '{ __rex_keep "$?"; } 2>/dev/null' EXIT
exec 2>&1
[ "$__rex_code" = 0 ] || __rex_options+="(exit $__rex_code); "
"""
)
# on one line, so that bash's messages count the command's own lines
_RUN = (
    'eval "$1"; eval "$__rex_options$__rex_command"; '
    '{ __rex_code=$?; set +e; trap - EXIT; __rex_keep "$__rex_code"; exit "$__rex_code"; } 2>/dev/null'
)


def starting(state: str, sources: Sequence[str]) -> str:
    """A command that sources these files and saves its environment as `state`; it prints what the files print."""
    # interactive, because many profiles do nothing otherwise; bash's complaint about the missing terminal is dropped
    return f"PS1='$ ' exec {join(['bash', '--norc', '-i', '-c', _START, 'bash', state, *sources])} 2>/dev/null"


def running(state: str) -> Sequence[str]:
    """The argv that runs the command on its stdin in the shell of `state`, with one stream of output."""
    return ["bash", "--norc", "--noprofile", "-c", _RUN, "bash", _BEFORE, state]


def syntax_error(stderr: str) -> str | None:
    """Bash's message about a syntax error, in which case nothing ran; None: the command ran."""
    _, found, said = stderr.partition(_SYNTAX)
    return said if found else None
