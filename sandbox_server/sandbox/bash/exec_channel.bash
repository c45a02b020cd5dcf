# An exec channel: reads requests, each a text of bash after its length in eight digits, and evaluates them. The engine
# starts it once and it is reused: a fork here takes a millisecond, an exec by the engine some 60.
# Names begin with __sb_ because this shell's environment becomes the command's.
exec {__sb_in}<&0 {__sb_out}>&1 {__sb_err}>&2 < /dev/null > /dev/null 2> /dev/null
shopt -s nullglob
__sb_had_lc=${LC_ALL+x} __sb_lc=$LC_ALL
unset LC_ALL
LC_ALL=C # only for this shell: messages of `jobs` are not translated, and lengths are in bytes

for __sb_pids in /sys/fs/cgroup/pids /sys/fs/cgroup/pids/pids ''; do
  [[ -r $__sb_pids.current ]] && read -r __sb_most < "$__sb_pids.max" && [[ $__sb_most != max ]] && break
done

# Whether the container is at its process limit; a shell would try to fork for 15 s before it reports that.
__sb_full() {
  local current
  [[ $__sb_pids ]] && read -r current < "$__sb_pids.current" && ((current >= __sb_most))
}

__sb_now() {
  read -r __sb_tick _ < /proc/uptime
  read -r _ _ _ _ __sb_last < /proc/loadavg
  __sb_tick=${__sb_tick/./} __sb_began=$SECONDS
}

# Sets __sb_entry to user $1's (name or number) entry in /etc/passwd: the line, name, uid, gid, home.
__sb_passwd() {
  local lines all IFS= part=$'[^:\n]*'
  mapfile lines < /etc/passwd
  all=$'\n'${lines[*]}
  # usually it is the same user as the last time, and another search costs a tenth of a command
  [[ $1 == "$__sb_name" ]] && [ "$all" = "$__sb_users" ] && return "$__sb_absent"
  __sb_name=$1 __sb_users=$all __sb_absent=0
  [[ $all =~ $'\n'("$1"):$part:($part):($part):$part:($part) || $all =~ $'\n'($part):$part:("$1"):($part):$part:($part) ]] ||
    __sb_absent=1
  __sb_entry=("${BASH_REMATCH[@]}")
  return "$__sb_absent"
}

# Becomes the command. $1: nonce, $2: tag, $3: name of the login (below) if its profile may be skipped, $4: user if it
# starts at home, $5: folder, $6: stdin (null, pipe), $7: stderr (err, out), $8: number of NAME=VALUE arguments, which
# follow, then the command.
# The tag is a value of a resource limit that Linux has not enforced since 2.4. Children inherit it, also through
# setsid, a double fork and `env -i`; only CAP_SYS_RESOURCE can raise it again, and every user can read it in /proc.
__sb_become() {
  ulimit -x "$2"
  # stdin is closed or was written to before we started: the request was cancelled
  read -r -t 0 -u "$__sb_in" && exit 125
  if [[ $6 == pipe ]]; then exec <&"$__sb_in"; fi
  exec >&"$__sb_out" 2>&"$__sb_err" {__sb_in}<&- {__sb_out}>&- {__sb_err}>&- 9>&- # 9: fifo_stream.py
  if [[ $__sb_own ]]; then exec {__sb_own}>&-; fi
  printf '%s %s %s %s %s\n' "$1" "$BASHPID" "$__sb_tick" "$__sb_last" "${3:--}"
  if [[ $7 == out ]]; then exec 2>&1; fi
  if [[ $4 ]]; then
    [[ $4 == "$__sb_name" ]] || __sb_passwd "$4"
    export USER=${__sb_entry[1]:-$4} LOGNAME=${__sb_entry[1]:-$4} HOME=${__sb_entry[4]:-/}
    cd -P -- "$HOME" 2> /dev/null || cd /
  fi
  if ! cd -P -- "$5" 2> /dev/null; then
    printf 'the command could not be started: no folder %s that its user may enter\n' "$5" >&2
    exit 126
  fi
  unset OLDPWD LC_ALL
  if [[ $__sb_had_lc ]]; then export LC_ALL=$__sb_lc; fi
  local __sb_count=$8 __sb_login=$3
  shift 8
  while ((__sb_count--)); do
    export "$1"
    shift
  done
  if [[ $__sb_login ]]; then
    "__sb_env_$__sb_login"
    set -- "$1" --noprofile "${@:2}"
  fi
  exec -- "$@"
}

# Whether a process started since process $1 holds this channel's output open, or might: not every process can be
# inspected.
__sb_held() {
  local last p f line all= command=$1
  read -r _ _ _ _ last < /proc/loadavg
  [[ $last == "$command" ]] && return 1
  # process ids start again after the largest one, at the earliest after seconds
  ((last < command || SECONDS - __sb_began > 2)) && all=1
  for p in /proc/[0-9]*; do
    ((${p#/proc/} == $$)) && continue
    if ((${p#/proc/} <= command)); then
      [[ $all ]] && read -r line < "$p/stat" || continue
      set -- ${line##*) }
      ((${20:-0} >= __sb_tick)) || continue
    fi
    if [[ ! -r $p/fd ]]; then
      [[ -e $p ]] && return 0
      continue
    fi
    for f in "$p"/fd/*; do
      [[ $f -ef /proc/$$/fd/$__sb_out || $f -ef /proc/$$/fd/$__sb_err ]] && return 0
      [[ ! -e $f && -L $f ]] && return 0
    done
  done
  return 1
}

# A pipe to ourselves for this shell's message about a child that a signal ended; an exit status alone does not tell.
__sb_watch() {
  exec {__sb_own}<> <(:) 2>&"$__sb_own"
  wait $!
}

# Runs a command by `__sb_become` and reports its end: status, exited or signalled, whether the channel is free.
# For SIGINT, SIGPIPE and SIGTERM a shell prints no message: they are reported as statuses.
__sb_run() {
  local __sb_pid __sb_line __sb_end=exited
  if __sb_full; then
    printf '%s full\n' "$1" >&"$__sb_out"
    return
  fi
  [[ $__sb_own ]] || __sb_watch
  # a dependency of the login has changed: the profile has to run
  if [[ $3 ]] && ! "__sb_same_$3"; then set -- "$1" "$2" '' "${@:4}"; fi
  if [[ $4 ]]; then __sb_passwd "$4"; fi # in this shell, not in the child, so that it is remembered
  __sb_now
  set -m # gives it its own process group, and SIGINT is not ignored
  __sb_become "$@" &
  __sb_pid=$!
  set +m # otherwise `wait` ends when the command is only stopped
  wait "$__sb_pid"
  set -- "$1" $?
  if (($2 > 128)); then
    while read -r -t 0 -u "$__sb_own" && IFS= read -r -u "$__sb_own" __sb_line; do
      [[ $__sb_line == *" $__sb_pid "* ]] && __sb_end=signalled
    done
  fi
  if __sb_held "$__sb_pid"; then set -- "$@" held; else set -- "$@" free; fi
  printf '%s %s %s %s\n' "$1" "$2" "$__sb_end" "$3" >&"$__sb_out"
  printf '%s\n' "$1" >&"$__sb_err"
}

# Whether process $1 belongs to the command with tag $2 and first process $3. gVisor can neither set nor show the limit;
# what has left the command's process group cannot be recognised there.
__sb_of() {
  local lines
  if mapfile -t lines 2> /dev/null < "/proc/$1/limits"; then
    [[ ${lines[*]} == *" $2 "* ]]
  elif [[ ! -e /proc/$$/limits ]] && { read -r lines < "/proc/$1/stat"; } 2> /dev/null; then
    set -- "$3" ${lines##*) }
    [[ $1 != 0 && $4 == "$1" ]] # 0: not known
  else
    return 1
  fi
}

# Kills the processes of the command with tag $2 and first process $3, and their descendants; with $4 and $5 (time and
# highest process id before the command started), also processes that started later and were orphaned. Never forks, so
# that it works at the process limit.
__sb_kill() {
  local tag=$2 command=$3 tick=$4 last=$5 pass clean=0 f line pid victims held
  local -a stopped=()
  for ((pass = 0; pass < 200; pass++)); do
    victims=()
    local -a parent=() marked=() late=() # by process id, so that parents are killed before their children
    for f in /proc/[0-9]*/stat; do
      # a process that ends during the scan may have left a child that the scan missed
      { read -r line < "$f"; } 2> /dev/null || { clean=-1; continue; }
      pid=${line%% *}
      set -- "$1" ${line##*) }
      [[ $2 == [ZX] ]] && continue
      parent[$pid]=$3
      [[ $tick && $3 == 1 ]] && ((${21} > tick || (${21} == tick && pid > last))) && late[$pid]=1
      __sb_of "$pid" "$tag" "$command" && marked[$pid]=1
    done
    for pid in "${!parent[@]}"; do
      [[ $pid == 1 || $pid == $$ ]] && continue
      f=$pid
      while [[ $f != 0 && $f != 1 && ! ${marked[$f]} ]]; do f=${parent[$f]:-0}; done
      [[ ${marked[$f]} || ${late[$pid]} ]] && victims+=("$pid")
    done
    if ((!${#victims[@]})); then
      ((++clean == 2)) && break
      continue
    fi
    clean=0
    if [[ ! -e /proc/$$/limits ]]; then # without a mark, a child that leaves the group is only known while its parent lives
      held=${#stopped[@]}
      for pid in "${victims[@]}"; do stopped[$pid]=1; done
      ((${#stopped[@]} > held)) && { kill -STOP "${victims[@]}"; continue; }
    fi
    kill -KILL "${victims[@]}"
  done
  printf '%s done\n' "$1" >&"$__sb_out"
}

# Sends signal $4 to process $3, the first one of the command with tag $2.
__sb_signal() {
  local word=gone
  __sb_of "$3" "$2" "$3" && kill -"$4" "$3" && word=sent
  printf '%s %s\n' "$1" "$word" >&"$__sb_out"
}

# Whether user $2 (name or number) and group $3 ("": not requested) exist.
__sb_who() {
  local word=unknown lines IFS=
  [[ $2 =~ ^[0-9]+$ ]] || __sb_passwd "$2" && word=known
  if [[ $3 && ! $3 =~ ^[0-9]+$ ]]; then
    mapfile lines < /etc/group
    [[ $'\n'${lines[*]} == *$'\n'"$3":* ]] || word=unknown
  fi
  printf '%s %s %s\n' "$1" "$word" "${__sb_entry[2]}" >&"$__sb_out"
}

# Runs the request $3 if user $2 is still the user that this channel runs as.
__sb_as() {
  if __sb_passwd "$2" && [[ ${__sb_entry[2]} == "$EUID" ]]; then
    "${@:3}"
  else
    printf '%s stale\n' "$1" >&"$__sb_out"
  fi
}

# On a terminal, the request comes as an argument: the input belongs to the command.
eval "$1"
while IFS= read -r -N 8 -u "$__sb_in" __sb_request && IFS= read -r -N "$((10#$__sb_request))" -u "$__sb_in" __sb_request; do
  eval "$__sb_request"
done
