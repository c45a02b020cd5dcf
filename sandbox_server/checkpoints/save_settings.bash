# Functions that print commands which recreate a shell's folders, limits, history, functions and options.

__sb_save_folders() {
  # one folder per call, because a folder's name may have line feeds
  __sb_list=()
  while builtin dirs -l "+${#__sb_list[@]}" >| "$__sb_file.list"; do
    builtin mapfile __sb_lines < "$__sb_file.list"
    builtin printf -v __sb_name %s "${__sb_lines[@]}"
    __sb_list+=("${__sb_name%$'\n'}")
  done
  # if the working folder was removed, it is created, entered and removed again; its parent keeps its times
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
}

__sb_save_limits() {
  builtin printf 'builtin '
  builtin umask -p
  for __sb_opt in S H; do
    for __sb_name in c d e f i l m n q r R s t u v x; do # one by one: gVisor refuses some, and `ulimit` ends at the first
      builtin printf 'builtin ulimit -%s -%s ' "$__sb_opt" "$__sb_name"
      builtin ulimit "-$__sb_opt" "-$__sb_name" || builtin printf '\n'
    done
  done
}

# $1: the nonce.
__sb_save_history() {
  [[ :$SHELLOPTS: == *:history:* ]] || builtin return 0
  __sb_opt=${HISTTIMEFORMAT-unset}
  HISTTIMEFORMAT=
  builtin history 1 >| "$__sb_file.list"
  builtin mapfile -t __sb_list < "$__sb_file.list"
  if [[ ${__sb_list[0]-} == *"/run/sandbox/save $1 "* ]]; then # the action that runs this script
    __sb_name=${__sb_list[0]%%[!0-9 ]*}
    builtin history -d "$((__sb_name))"
  fi
  builtin printf 'builtin history -c\n'
  # with times, because only these show where an entry of several lines ends
  builtin history -w "$__sb_file.list"
  [[ $__sb_opt == unset ]] && builtin unset -v HISTTIMEFORMAT || HISTTIMEFORMAT=$__sb_opt
  builtin mapfile -t __sb_list < "$__sb_file.list"
  ((${#__sb_list[@]})) || builtin return 0
  builtin printf 'HISTTIMEFORMAT=\nbuiltin printf "%%s\\n"'
  builtin printf ' %q' "${__sb_list[@]}"
  builtin printf ' >| /run/sandbox/shell.list\nbuiltin history -r /run/sandbox/shell.list\n'
  [[ $__sb_opt == unset ]] && builtin printf 'builtin unset -v HISTTIMEFORMAT\n' ||
    builtin printf 'HISTTIMEFORMAT=%q\n' "$__sb_opt"
}

__sb_save_functions() {
  builtin printf 'builtin shopt -s extglob\n' # bash may need it to read the functions' bodies
  builtin local __sb_coproc=
  builtin local -a __sb_theirs
  __sb_theirs=()
  builtin declare -F >| "$__sb_file.list"
  builtin mapfile -t __sb_list < "$__sb_file.list"
  for __sb_name in "${__sb_list[@]}"; do
    [[ $__sb_name == *' __sb_'* ]] || __sb_theirs+=("$__sb_name")
  done
  ((${#__sb_theirs[@]})) || builtin return 0
  builtin declare -f -- "${__sb_theirs[@]##* }" >| "$__sb_file.list"
  builtin mapfile __sb_lines < "$__sb_file.list"
  [[ ${__sb_lines[*]} == *'coproc COPROC '* ]] && __sb_coproc=1
  for __sb_name in "${__sb_theirs[@]}"; do
    __sb_opt=${__sb_name#declare -}
    __sb_name=${__sb_opt#* }
    __sb_opt=${__sb_opt%% *}
    # (bash would read `a[b ()` as the beginning of an assignment)
    [[ $__sb_name == [!'[']*'['* ]] && builtin printf 'function '
    if [[ $__sb_coproc ]]; then __sb_save_with_coproc; else builtin declare -f -- "$__sb_name"; fi
    [[ $__sb_opt == f ]] || builtin printf 'builtin declare -%s -- %q\n' "$__sb_opt" "$__sb_name"
  done
}

# Prints the function $__sb_name. Bash prints `coproc cat` as `coproc COPROC cat`, which would run COPROC. So COPROC is left
# out, unless the function would then print differently, because it also has these words in a string.
__sb_save_with_coproc() {
  builtin local __sb_was __sb_now
  builtin declare -f -- "$__sb_name" >| "$__sb_file.list"
  builtin mapfile __sb_lines < "$__sb_file.list"
  builtin printf -v __sb_was %s "${__sb_lines[@]}"
  __sb_now=${__sb_was//coproc COPROC /coproc }
  builtin eval "__sb_copy () ${__sb_now#*' () '}"
  builtin declare -f __sb_copy >| "$__sb_file.list"
  builtin unset -f __sb_copy
  builtin mapfile __sb_lines < "$__sb_file.list"
  builtin printf -v __sb_lines %s "${__sb_lines[@]}"
  [[ ${__sb_lines#*' () '} == "${__sb_was#*' () '}" ]] || __sb_now=$__sb_was
  builtin printf %s "$__sb_now"
}

# Options of `set` that would act on the restoring script too are not printed, but collected in `__sb_late`.
__sb_save_options() {
  builtin local __sb_on= __sb_off= __sb_set=
  builtin shopt -p >| "$__sb_file.list"
  builtin mapfile -t __sb_list < "$__sb_file.list"
  for __sb_name in "${__sb_list[@]}"; do
    case $__sb_name in
      *' expand_aliases' | *' compat'[0-9]*) ;; # (BASH_COMPAT, a variable, says which compatNN is set)
      *' extdebug') builtin printf 'builtin %s\n' "$__sb_name" ;; # before `set`, whose options it changes
      *' -s '*) __sb_on+=" ${__sb_name##* }" ;;
      *) __sb_off+=" ${__sb_name##* }" ;;
    esac
  done
  builtin set +o >| "$__sb_file.list"
  builtin mapfile -t __sb_list < "$__sb_file.list"
  for __sb_name in "${__sb_list[@]}"; do
    __sb_name=" ${__sb_name#set }"
    [[ $__sb_name == ' -o ignoreeof' ]] && builtin continue # it would change IGNOREEOF, which sets it
    [[ $__sb_name == *' '@(errexit|history|nounset|verbose|xtrace) ]] && __sb_late+=$__sb_name || __sb_set+=$__sb_name
  done
  # `posix` changes options of `shopt`, and lets aliases act on the lines after this one
  builtin printf 'builtin set%s %s\n' "$__sb_set" "$__sb_keyword"
  builtin printf '\\builtin shopt -s%s\n\\builtin shopt -u%s\n' "$__sb_on" "$__sb_off"
}
