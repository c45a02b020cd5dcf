# Start file of the interactive shell. Names with __sb_ belong to the service; an action costs no fork of ours.
set +o history +H
unset HISTFILE MAILCHECK PROMPT_COMMAND
PS1= PS2=
export LANG=${LANG:-C.UTF-8} # the image's own, if it has one
stty sane -echo cols 200 rows 50 2> /dev/null
alias git='git --no-pager'

# Before an action. $1: its nonce; $2: m to set the mark from which a timeout kills. Keeps $?.
# (REPLY keeps the line unchanged, whatever IFS is.)
__sb_b() {
  builtin local "s=$?" REPLY t
  if [[ $2 == m ]]; then
    builtin read -r < /proc/uptime
    t=$REPLY
    builtin read -r < /proc/loadavg
    builtin printf '%s\n%s\n' "$t" "$REPLY" >| /run/sandbox/mark
  fi
  __sb_n=$1
  if [[ -t 1 ]]; then
    builtin printf '\036B%s\036' "$1"
  else # gVisor's /dev/tty cannot be opened; 255 is bash's own descriptor of the terminal
    { builtin printf '\036B%s\036' "$1" > /dev/tty || builtin printf '\036B%s\036' "$1" >&255; } 2> /dev/null
  fi
  builtin return "$s"
}

# After an action's text, unless SIGINT cut it off: restores PROMPT_COMMAND if the action changed it.
__sb_d() {
  builtin unset PROMPT_COMMAND
  PROMPT_COMMAND='\__sb_p "$?"'
  builtin return "$1"
}

# Saves the state with which the next shell starts (state.bash), in two files by turns, since a rename would cost a fork:
# what a shell leaves that is killed while it writes has no last line, and the other file has the state before.
__sb_s() {
  __sb_saves=$((${__sb_saves-0} + 1))
  { builtin printf 'cd -- %q\n' "$PWD"; builtin export -p; builtin printf '# %s\n' "$__sb_saves"; } \
    >| "/run/sandbox/env$((__sb_saves & 1))"
}

# Before each prompt, so also after SIGINT: reports how the action ended and the shell's state. The prompt follows the
# notices of ended jobs, so it marks the end of the terminal's output. It goes to stderr: if that is the terminal
# (flag t), the report is a part of it, since each write wakes two processes.
__sb_p() {
  { [[ $- == *x* ]] && __sb_x=x && builtin set +x; } 2> /dev/null
  __sb_i=
  builtin local report flags= python= "nonce=${__sb_n-}" "cwd=${PWD:-$(builtin pwd)}"
  if [[ $nonce ]]; then
    __sb_n=
    [[ -t 2 ]] && flags=t
    # after `exec >&-` by the policy: a shell without stdout or stderr is replaced
    [[ -e /dev/fd/1 && -e /dev/fd/2 ]] || flags=c
    { # one redirection for all of this: it takes ten system calls
      builtin hash python && python=${BASH_CMDS[python]-}
      __sb_s
      builtin printf -v report '\036I%s %s %s %s \037%s\037%s\036' "$nonce" "$1" "$EUID" "$flags" "$cwd" "$python"
      # (after a syntax error bash shows the prompt that it had before)
      if [[ $1 == 0 && $flags == t && $BASHOPTS == *promptvars* ]] &&
        builtin declare -g "PS1=\${__sb_i}"$'\036'"P$nonce \\u"$'\036'; then # it may be read-only
        __sb_i=$report
      else
        builtin printf '%s' "$report" > /dev/tty || builtin printf '%s' "$report" >&255
        builtin declare -g PS1=$'\036'"P$nonce \\u"$'\036'
      fi
    } 2> /dev/null
    [[ $flags == c ]] && builtin exit 0
  fi
  if [[ ${__sb_x-} ]]; then __sb_x= && builtin set -x; fi
}
trap '__sb_s 2> /dev/null' EXIT
