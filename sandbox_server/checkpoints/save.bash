# Sourced by a session's shell between two actions. $1: a nonce; $2: the shell's `$?`; $3...: its positional parameters.
# /run/sandbox/shell.traps has its traps. Writes /run/sandbox/shell, a script that recreates this shell's state in another
# shell of the same image. Its first line is a comment with the file descriptors that cannot be recreated; its last line
# is the nonce, which proves that the script is complete. Forks nothing; the service's names begin with __sb_.
\builtin shopt -q expand_aliases && __sb_expand=-s || __sb_expand=-u
\builtin shopt -u expand_aliases
[[ $- == *k* ]] && __sb_keyword=-k || __sb_keyword=+k
\builtin set +k # with it, `local a=b` sets nothing
# Only lines after this one are safe from aliases.
__sb_save() {
  builtin local __sb_name __sb_opt __sb_file=/run/sandbox/shell __sb_open= __sb_nonce=$1 __sb_code=$2 __sb_changing=' ' __sb_kept
  builtin local -a __sb_list __sb_lines
  builtin shift 2
  # what bash itself sets, and what rc.bash sets before each prompt
  builtin local __sb_not=' BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND'
  __sb_not+=' BASH_EXECUTION_STRING BASH_LINENO BASH_MONOSECONDS BASH_SOURCE BASH_SUBSHELL BASH_TRAPSIG'
  __sb_not+=' BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD'
  __sb_not+=' LINENO PIPESTATUS PPID PROMPT_COMMAND PS1 RANDOM SECONDS SHELLOPTS SRANDOM UID _ '

  builtin compgen -f "/proc/$$/fd/" >| "$__sb_file.list"
  builtin mapfile -t __sb_list < "$__sb_file.list"
  for __sb_name in "${__sb_list[@]}"; do
    [[ -e $__sb_name ]] || builtin continue # the descriptor that listed them
    __sb_name=${__sb_name##*/}
    if ((__sb_name > 2)); then
      [[ /proc/$$/fd/$__sb_name -ef /dev/tty || /proc/$$/fd/$__sb_name -ef /proc/$$/fd/255 ]] && builtin continue
      # ours: this file, its list, and stderr as it was
      [[ /proc/$$/fd/$__sb_name -ef /dev/null || /proc/$$/fd/$__sb_name -ef /run/sandbox/save ]] && builtin continue
      [[ /proc/$$/fd/$__sb_name -ef "$__sb_file.list" ]] && builtin continue
      __sb_open+=" $__sb_name"
    elif ((__sb_name != 2)) && [[ ! -t $__sb_name ]]; then # stderr is our caller's
      __sb_open+=" $__sb_name"
    fi
  done

  {
    builtin printf '#%s\n' "$__sb_open"
    # one by one, because a folder's name may have line feeds
    __sb_list=()
    while builtin dirs -l "+${#__sb_list[@]}" >| "$__sb_file.list"; do
      builtin mapfile __sb_lines < "$__sb_file.list"
      builtin printf -v __sb_name %s "${__sb_lines[@]}"
      __sb_list+=("${__sb_name%$'\n'}")
    done
    # a removed folder is created for a moment, to be entered; its parent keeps its times
    builtin printf '__sb_name=%q\n' "${__sb_list[0]}"
    builtin printf '%s\n' \
      'builtin cd -- "$__sb_name" || {' \
      '  __sb_not=$__sb_name' \
      '  until [[ -d $__sb_not/ ]]; do __sb_not=${__sb_not%/*}; done' \
      '  touch -r "$__sb_not/" -- /run/sandbox/shell.list' \
      '  mkdir -p -- "$__sb_name" && builtin cd -- "$__sb_name" &&' \
      '    (builtin cd -- "$__sb_not/" && rmdir -p -- "${__sb_name#"$__sb_not"/}")' \
      '  touch -r /run/sandbox/shell.list -- "$__sb_not/"' \
      '}' \
      'builtin dirs -c'
    for ((__sb_name = ${#__sb_list[@]} - 1; __sb_name > 0; __sb_name--)); do
      builtin printf 'builtin pushd -n -- %q\n' "${__sb_list[__sb_name]}"
    done

    builtin compgen -v >| "$__sb_file.list"
    builtin mapfile -t __sb_list < "$__sb_file.list"
    builtin printf '__sb_not=%q\n' "$__sb_not"
    builtin printf '%s\n' \
      'builtin compgen -v >| /run/sandbox/shell.list' \
      'builtin mapfile -t __sb_list < /run/sandbox/shell.list' \
      'for __sb_name in "${__sb_list[@]}"; do' \
      '  [[ $__sb_not == *" $__sb_name "* || $__sb_name == __sb_* ]] || builtin unset -v -- "$__sb_name"' \
      'done' \
      'builtin compgen -A function >| /run/sandbox/shell.list' \
      'builtin mapfile -t __sb_list < /run/sandbox/shell.list' \
      'for __sb_name in "${__sb_list[@]}"; do [[ $__sb_name == __sb_* ]] || builtin unset -f -- "$__sb_name"; done' \
      'builtin unalias -a'
    __sb_lines=() # or they would be listed
    builtin declare -p >| "$__sb_file.list"
    builtin mapfile -t __sb_lines < "$__sb_file.list"
    for __sb_name in "${__sb_lines[@]}"; do # (a line of a value does no harm)
      if [[ $__sb_name != *=* && $__sb_name == 'declare -'+([a-zA-Z-])' '+([a-zA-Z0-9_]) ]]; then
        __sb_list+=("${__sb_name##* }") # declared without a value: `compgen` does not list these
      elif [[ ${__sb_name:0:13} == 'declare -'@(|?|??|???)[iluc]* ]]; then
        __sb_name=${__sb_name#declare * }
        __sb_changing+="${__sb_name%%=*} "
      fi
    done
    for __sb_name in "${__sb_list[@]}"; do
      [[ $__sb_not == *" $__sb_name "* || $__sb_name == __sb_* ]] && builtin continue
      if [[ $__sb_changing != *" $__sb_name "* ]]; then
        builtin declare -p -- "$__sb_name"
        builtin continue
      fi
      # the attribute may be newer than the value, and would change it
      builtin declare -p -- "$__sb_name" >| "$__sb_file.list"
      builtin mapfile __sb_lines < "$__sb_file.list"
      __sb_opt=${__sb_lines[0]#declare -}
      __sb_opt=${__sb_opt%% *}
      __sb_lines[0]=${__sb_lines[0]#"declare -$__sb_opt "}
      __sb_kept=${__sb_opt//[ilucr]}
      builtin printf 'declare -%s ' "${__sb_kept:--}"
      builtin printf %s "${__sb_lines[@]}"
      [[ $__sb_opt != *[ilucr]* ]] || builtin printf 'declare -%s %s\n' "${__sb_opt//[!ilucr]}" "$__sb_name"
    done
    builtin printf 'SECONDS=%s\n' "$SECONDS"
    # these have a value only after their first use
    builtin declare -p -- BASHPID EPOCHREALTIME EPOCHSECONDS HISTCMD LINENO RANDOM SRANDOM >| "$__sb_file.list"
    builtin mapfile -t __sb_list < "$__sb_file.list"
    for __sb_name in "${__sb_list[@]}"; do
      [[ $__sb_name == *=* ]] || builtin continue
      __sb_name=${__sb_name%%=*}
      builtin printf 'builtin : "$%s"\n' "${__sb_name##* }"
    done
    builtin printf 'builtin '
    builtin umask -p
    for __sb_opt in S H; do
      for __sb_name in c d e f i l m n q r s t u v x; do
        builtin printf 'builtin ulimit -%s -%s ' "$__sb_opt" "$__sb_name"
        builtin ulimit "-$__sb_opt" "-$__sb_name" || builtin printf '\n'
      done
    done
    builtin printf 'builtin set --'
    (($#)) && builtin printf ' %q' "$@"
    builtin printf '\n'
    builtin hash >| /dev/null 2>&1 && builtin hash -l
    if [[ :$SHELLOPTS: == *:history:* ]]; then
      __sb_opt=${HISTTIMEFORMAT-unset}
      HISTTIMEFORMAT=
      builtin history 1 >| "$__sb_file.list"
      builtin mapfile -t __sb_list < "$__sb_file.list"
      if [[ ${__sb_list[0]-} == *"/run/sandbox/save $__sb_nonce "* ]]; then # this
        __sb_name=${__sb_list[0]%%[!0-9 ]*}
        builtin history -d "$((__sb_name))"
      fi
      builtin printf 'builtin history -c\n'
      # with times, because only these show where an entry of several lines ends
      builtin history -w "$__sb_file.list"
      [[ $__sb_opt == unset ]] && builtin unset -v HISTTIMEFORMAT || HISTTIMEFORMAT=$__sb_opt
      builtin mapfile -t __sb_list < "$__sb_file.list"
      if ((${#__sb_list[@]})); then
        builtin printf 'HISTTIMEFORMAT=\nbuiltin printf "%%s\\n"'
        builtin printf ' %q' "${__sb_list[@]}"
        builtin printf ' >| /run/sandbox/shell.list\nbuiltin history -r /run/sandbox/shell.list\n'
        [[ $__sb_opt == unset ]] && builtin printf 'builtin unset -v HISTTIMEFORMAT\n' ||
          builtin printf 'HISTTIMEFORMAT=%q\n' "$__sb_opt"
      fi
    fi
    builtin alias -p
    builtin printf 'builtin trap - EXIT\n' # rc.bash's

    # functions: their bodies may need extglob to be read
    builtin printf 'builtin shopt -s extglob\n'
    builtin declare -F >| "$__sb_file.list"
    builtin mapfile -t __sb_list < "$__sb_file.list"
    for __sb_name in "${__sb_list[@]}"; do
      __sb_opt=${__sb_name#declare -}
      __sb_name=${__sb_opt#* }
      __sb_opt=${__sb_opt%% *}
      [[ $__sb_name == __sb_* ]] && builtin continue
      builtin declare -f -- "$__sb_name"
      [[ $__sb_opt == f ]] || builtin printf 'builtin declare -%s -- %q\n' "$__sb_opt" "$__sb_name"
    done

    # from here on, a function of the policy may shadow any builtin
    builtin shopt -p >| "$__sb_file.list"
    builtin mapfile -t __sb_list < "$__sb_file.list"
    for __sb_name in "${__sb_list[@]}"; do
      # (setting any of compatNN sets BASH_COMPAT)
      [[ $__sb_name == *' expand_aliases' || $__sb_name == *' -u compat'* ]] || builtin printf 'builtin %s\n' "$__sb_name"
    done
    builtin set +o >| "$__sb_file.list"
    builtin mapfile -t __sb_list < "$__sb_file.list"
    for __sb_name in "${__sb_list[@]}"; do
      [[ $__sb_name == *' '@(errexit|history|nounset|verbose|xtrace) ]] || builtin printf 'builtin %s\n' "$__sb_name"
    done
    builtin printf 'builtin set %s\n' "$__sb_keyword"
    # last, because ERR, DEBUG and RETURN would also fire for this script
    builtin mapfile __sb_lines < "$__sb_file.traps"
    builtin printf %s "${__sb_lines[@]/#trap -- /builtin trap -- }"
    builtin enable -n >| "$__sb_file.list"
    builtin mapfile __sb_lines < "$__sb_file.list"
    builtin printf %s "${__sb_lines[@]/#/builtin }"
    builtin printf 'builtin unset -v __sb_not __sb_list __sb_name\nbuiltin shopt %s expand_aliases\n' "$__sb_expand"
    for __sb_name in "${__sb_list[@]}"; do
      # (on one line, since history keeps lines)
      [[ $__sb_name == *' '@(errexit|history|nounset|verbose|xtrace) ]] && builtin printf 'builtin %s; ' "$__sb_name"
    done
    builtin printf 'builtin return %s\n#%s\n' "$__sb_code" "$__sb_nonce"
  } >| "$__sb_file"
} 2> /dev/null
__sb_save "$@" || builtin :
builtin shopt "$__sb_expand" expand_aliases
builtin set "$__sb_keyword"
builtin unset -v __sb_expand __sb_keyword __sb_status
builtin unset -f __sb_save
builtin return "$2"
