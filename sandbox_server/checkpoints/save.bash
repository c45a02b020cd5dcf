# Sets `__sb_open` to the descriptors that cannot be recreated. $1: 0 if stderr is the terminal.
__sb_save_descriptors() {
  builtin local __sb_held=$1
  ((__sb_held)) && __sb_open=' 2'
  builtin compgen -f "/proc/$$/fd/" >| "$__sb_file.list"
  builtin mapfile -t __sb_list < "$__sb_file.list"
  for __sb_name in "${__sb_list[@]}"; do
    [[ -e $__sb_name ]] || builtin continue # compgen's own descriptor of this folder, closed again
    __sb_name=${__sb_name##*/}
    if ((__sb_name > 2)); then
      [[ /proc/$$/fd/$__sb_name -ef /dev/tty || /proc/$$/fd/$__sb_name -ef /proc/$$/fd/255 ]] && builtin continue
      ((__sb_name < 10 || !__sb_held)) || { __sb_held=0 && builtin continue; } # stderr as it was
      # the service's own: this script and the list
      [[ /proc/$$/fd/$__sb_name -ef /dev/null || /proc/$$/fd/$__sb_name -ef /run/sandbox/save ]] && builtin continue
      [[ /proc/$$/fd/$__sb_name -ef "$__sb_file.list" ]] && builtin continue
      __sb_open+=" $__sb_name"
    elif ((__sb_name != 2)) && [[ ! -t $__sb_name ]]; then # (the caller has redirected 2)
      __sb_open+=" $__sb_name"
    fi
  done
}

__sb_save() {
  builtin local __sb_name __sb_opt __sb_file=/run/sandbox/shell __sb_open= __sb_late= __sb_begun= __sb_nonce=$1 __sb_code=$2 __sb_err=$3
  builtin local -a __sb_list __sb_lines
  builtin shift 3
  __sb_save_descriptors "$__sb_err"
  {
    builtin printf '#%s\n' "$__sb_open"
    __sb_save_folders
    __sb_save_variables
    builtin printf 'builtin set --'
    (($#)) && builtin printf ' %q' "$@"
    builtin printf '\n'
    builtin hash >| /dev/null 2>&1 && builtin hash -l
    __sb_save_history "$__sb_nonce"
    __sb_save_limits # after all that writes files, which a limit could prevent
    builtin alias -p
    builtin printf 'builtin trap - EXIT\n' # set by rc.bash
    __sb_save_functions
    # from here on, a function of the policy may shadow any builtin
    __sb_save_options
    # last, because ERR, DEBUG and RETURN would also fire for this script
    builtin mapfile __sb_lines < "$__sb_file.traps"
    for __sb_name in "${__sb_lines[@]}"; do
      [[ $__sb_begun ]] || builtin printf '\\builtin '
      builtin printf %s "$__sb_name"
      # a trap ends with its closing quote and the signal; a quote within it is '\''
      [[ $__sb_name == *"' "+([A-Z0-9+-])$'\n' && $__sb_name != *"'\'' "+([A-Z0-9+-])$'\n' ]] && __sb_begun= || __sb_begun=1
    done
    builtin printf '\\builtin printf "__sb_whole\\n"\n'
    builtin enable -n >| "$__sb_file.list"
    builtin mapfile __sb_lines < "$__sb_file.list"
    builtin printf %s "${__sb_lines[@]/#/\\builtin }"
    # (on one line, since history keeps lines)
    builtin printf '\\builtin unset -v __sb_not __sb_list __sb_name\n\\builtin shopt %s expand_aliases\n\\builtin set%s; \\builtin return %s\n#%s\n' \
      "$__sb_expand" "$__sb_late" "$__sb_code" "$__sb_nonce"
  } >| "$__sb_file"
} 2> /dev/null
__sb_save "$@" || builtin :
builtin shopt "$__sb_expand" expand_aliases
# from here on, aliases act again
\builtin set "$__sb_keyword"
\builtin unset -v __sb_expand __sb_keyword __sb_status
\builtin unset -f __sb_save __sb_save_descriptors __sb_save_folders __sb_save_variables __sb_save_table __sb_reverse \
  __sb_save_limits __sb_save_history __sb_save_functions __sb_save_with_coproc __sb_save_options
\builtin return "$2"
