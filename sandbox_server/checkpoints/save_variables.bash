# Prints commands that remove the variables, functions and aliases of another shell and recreate this shell's variables.
__sb_save_variables() {
  # what bash itself sets, and what rc.bash sets before each prompt
  builtin local __sb_not=' BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND'
  __sb_not+=' BASH_EXECUTION_STRING BASH_LINENO BASH_MONOSECONDS BASH_SOURCE BASH_SUBSHELL BASH_TRAPSIG'
  __sb_not+=' BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD'
  __sb_not+=' LINENO PIPESTATUS PPID PROMPT_COMMAND PS1 RANDOM SECONDS SHELLOPTS SRANDOM UID _ '
  builtin local __sb_changing=' ' __sb_kept
  builtin local -a __sb_plain
  __sb_plain=()
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
  for __sb_name in "${__sb_lines[@]}"; do # (a line inside a value, taken for a declaration, does no harm)
    [[ $__sb_name == 'declare -'[-rtx]' '*=* ]] && builtin continue # nearly all
    if [[ $__sb_name != *=* && $__sb_name == 'declare -'+([a-zA-Z-])' '+([a-zA-Z0-9_]) ]]; then
      __sb_list+=("${__sb_name##* }") # declared without a value: `compgen` does not list these
    fi
    if [[ ${__sb_name:0:13} == 'declare -'@(|?|??|???)[iluc]* || $__sb_name == 'declare -A'* ]]; then
      __sb_name=${__sb_name#declare * }
      __sb_changing+="${__sb_name%%=*} "
    fi
  done
  for __sb_name in "${__sb_list[@]}"; do
    [[ $__sb_not == *" $__sb_name "* || $__sb_name == __sb_* ]] && builtin continue
    if [[ $__sb_changing != *" $__sb_name "* ]]; then
      __sb_plain+=("$__sb_name")
      builtin continue
    fi
    builtin declare -p -- "$__sb_name" >| "$__sb_file.list"
    builtin mapfile __sb_lines < "$__sb_file.list"
    __sb_opt=${__sb_lines[0]#declare -}
    __sb_opt=${__sb_opt%% *}
    __sb_lines[0]=${__sb_lines[0]#"declare -$__sb_opt "}
    # set after the value: these attributes may be newer than the value, and would change it
    __sb_kept=${__sb_opt//[ilucr]}
    # (`nocasematch` takes an `a` for an `A`, but not here)
    [[ ${__sb_opt%%A*} == "$__sb_opt" ]] || __sb_save_table "$__sb_name"
    builtin printf 'declare -%s ' "${__sb_kept:--}"
    builtin printf %s "${__sb_lines[@]}"
    [[ $__sb_opt != *[ilucr]* ]] || builtin printf 'declare -%s %s\n' "${__sb_opt//[!ilucr]}" "$__sb_name"
  done
  ((${#__sb_plain[@]})) && builtin declare -p -- "${__sb_plain[@]}"
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

# For the associative array $1, whose declaration without attributes is in __sb_lines: prints commands that make an array
# with as many buckets, and orders the keys in __sb_lines so that the copy lists them in the same order.
# Bash lists keys by bucket, and within a bucket the newest key first. From 5.1 on, an array has 128 buckets if it was another
# variable before, else 1,024, and grows fourfold when a key is added to twice as many keys as buckets. It never shrinks.
__sb_save_table() {
  # global, because a local array always has 1,024, or with `localvar_inherit` 128
  builtin declare -gA __sb_new
  builtin declare -g __sb_old
  builtin declare -gA __sb_old
  builtin local __sb_like=new-1024 __sb_table=__sb_new __sb_size __sb_own= __sb_order __sb_count __sb_elements __sb_i
  builtin local __sb_words='([tango]= [lima]= [alpha]= [juliett]= [sierra]= [kilo]= [echo]= [xray]= [papa]= [uniform]= [november]= [zulu]=)'
  builtin printf -v __sb_elements %s "${__sb_lines[@]}"
  if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); then
    # A local copy keeps its number of buckets when it is emptied, and the order of some words then shows that number. A
    # read-only array cannot be copied; but it gets no further keys, so it is enough if its own keys come in this order.
    builtin local -n "__sb_array=$1"
    if builtin local -I -- "$1"; then builtin eval "$1=$__sb_words"; else __sb_own=1; fi
    __sb_order=${!__sb_array[*]} __sb_count=${#__sb_array[@]}
    for __sb_like in new-1024 old-128 old-512 old-2048 new-4096 old-8192 new-16384 old-32768 new-65536 none; do
      __sb_table=__sb_${__sb_like%-*} __sb_size=${__sb_like#*-}
      ((__sb_count <= 2 * __sb_size)) || builtin continue # (0 for `none`)
      builtin local -n "__sb_array=$__sb_table"
      case $__sb_like in
        new-1024 | old-128) ;;
        *) for ((__sb_i = 0; __sb_i <= __sb_size / 2; __sb_i++)); do __sb_array[$__sb_i]=; done ;;
      esac
      if [[ $__sb_own ]]; then
        __sb_reverse "$__sb_elements" && __sb_reverse "${__sb_lines[@]}"
      else
        builtin eval "$__sb_table=$__sb_words"
      fi
      [[ ${!__sb_array[*]} == "$__sb_order" ]] && builtin break
    done
  fi
  [[ $__sb_like == none ]] && __sb_table=__sb_new
  [[ $__sb_like == old-* ]] && builtin printf 'declare -- %s\n' "$1"
  [[ $__sb_like == @(new-1024|old-128|none) ]] ||
    builtin printf 'declare -A %s\nfor ((__sb_name = 0; __sb_name <= %s; __sb_name++)); do %s[$__sb_name]=; done\n%s=()\n' \
      "$1" $((__sb_size / 2)) "$1" "$1"
  [[ $__sb_elements != *=* ]] || __sb_reverse "$__sb_elements"
  builtin unset -v __sb_new __sb_old
}

# Puts the elements of $1... into the table, and the declaration of $1 with its elements in the table's order into __sb_lines.
# They are listed with the keys of each bucket reversed.
__sb_reverse() {
  builtin local __sb_text
  builtin printf -v __sb_text %s "$@"
  builtin eval "$__sb_table=${__sb_text#*=}"
  builtin declare -p -- "$__sb_table" >| "$__sb_file.list"
  builtin mapfile __sb_lines < "$__sb_file.list"
  __sb_lines[0]=${__sb_text%%=*}=${__sb_lines[0]#*=}
}
