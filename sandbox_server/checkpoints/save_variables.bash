# Prints what recreates the variables in a shell that has others, and removes its functions and aliases.
__sb_save_variables() {
  # what bash itself sets, and what rc.bash sets before each prompt
  builtin local __sb_not=' BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND'
  __sb_not+=' BASH_EXECUTION_STRING BASH_LINENO BASH_MONOSECONDS BASH_SOURCE BASH_SUBSHELL BASH_TRAPSIG'
  __sb_not+=' BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD'
  __sb_not+=' LINENO PIPESTATUS PPID PROMPT_COMMAND PS1 RANDOM SECONDS SHELLOPTS SRANDOM UID _ '
  builtin local __sb_changing=' ' __sb_kept
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
    fi
    if [[ ${__sb_name:0:13} == 'declare -'@(|?|??|???)[iluc]* ]]; then
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
    builtin declare -p -- "$__sb_name" >| "$__sb_file.list"
    builtin mapfile __sb_lines < "$__sb_file.list"
    __sb_opt=${__sb_lines[0]#declare -}
    __sb_opt=${__sb_opt%% *}
    __sb_lines[0]=${__sb_lines[0]#"declare -$__sb_opt "}
    # these attributes may be newer than the value, and would change it
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
}
