# The main process of a session's container, child of the init: keeps one interactive bash alive on the terminal.
# $1: text of the shell's start file; $2: the shell's user, "" for root. The terminal's first input line is the token that
# authenticates our notices.
D=/run/sandbox
IFS= read -r token
start=$1 as=() own=

# The shell of another user than root writes only these files in $D, which stays root's.
if [[ $2 ]]; then
  while IFS=: read -r name _ uid gid _ home _; do
    [[ $name == "$2" || $uid == "$2" ]] && break
    name=
  done < /etc/passwd
  if [[ $name ]]; then groups=--init-groups; else uid=$2 gid=$2 home=/ groups=--clear-groups; fi
  # by their paths: later the user may have put others into a folder of PATH
  as=("$(type -P env)" "HOME=${home:-/}" "$(type -P setpriv)" "--reuid=$uid" "--regid=$gid" "$groups" --)
  : > $D/mark && : > $D/env0 && : > $D/env1 && chown -- "$uid:$gid" $D/mark $D/env0 $D/env1
  own="$(type -P chown) -- $uid \"\$($(type -P tty))\"; " # so that /dev/stdout can be opened
fi

# With FIFOs that the server sees too, the shell runs on a terminal that `script` holds, and the FIFOs carry its bytes.
# The terminal of this process then carries only our notices. The word proves that both sides see the same FIFO.
direct=
if [[ -p $D/io/in && -p $D/io/out ]] && { exec 3<> $D/io/in 4<> $D/io/out; } 2> /dev/null &&
  IFS= read -r -t 1 -u 3 line && [[ $line == sandbox ]] && [[ $(script --version 2> /dev/null) == *util-linux* ]]; then
  direct=' direct'
fi
printf -v shell '%q ' "${as[@]}" bash --noediting --rcfile $D/rc -i
shell="${own}exec $shell"
if [[ $direct && $(declare -p SHELL) == 'declare -x'* ]]; then # `script` runs it by SHELL, which bash has set or got
  printf -v shell 'export SHELL=%q; %s' "$SHELL" "$shell"
else
  shell="unset SHELL; $shell"
fi

# The sweeper: on USR1 it kills every process started after the mark in $D/mark, on USR2 the interactive shell too. It
# never forks, so that it works at the container's process limit. It spares the init, the loop and its shell, and
# descendants of a `docker exec`; with FIFOs the shell is the child of `script`. The init forwards signals to this whole
# process group.
main=$$
sweep() {
  local pass f line pid tick last notice=$1 victims clean=0
  { read -r tick _ && read -r _ _ _ _ last; } 2> /dev/null < $D/mark || { tick=0; last=0; }
  [[ ${tick/./} == *[!0-9]* || $last == *[!0-9]* ]] && tick=0 last=0 # the shell's user writes them, root evaluates them
  tick=$((10#${tick/./})) # within its first second, as in gVisor's sandboxes, it begins with a zero
  for ((pass = 0; pass < 1000; pass++)); do
    victims=()
    local -a parent=() young=() # by process id, so that parents are killed before their children
    for f in /proc/[0-9]*/stat; do
      # a process that ends during the scan may have left a child that the scan missed
      { read -r line < "$f"; } 2> /dev/null || { clean=-1; continue; }
      pid=${line%% *}
      set -- ${line##*) } # fields from the third on: state, parent, ...; starttime is the 22nd
      parent[$pid]=$2
      [[ $1 == [ZX] ]] && continue # dead already
      (( ${20} > tick || (${20} == tick && pid > last) )) && young[$pid]=1
    done
    for pid in "${!young[@]}"; do
      [[ $pid == 1 || $pid == "$main" || $pid == "$BASHPID" || ${parent[$pid]} == "$main" ]] && continue
      [[ $direct && ${parent[${parent[$pid]}]:-0} == "$main" ]] && continue
      f=$pid
      while [[ $f != 1 && ${parent[$f]:-0} != 0 ]]; do f=${parent[$f]}; done
      [[ $f == 1 ]] && victims+=("$pid")
    done
    if [[ $notice == shell && $pass == 0 ]]; then
      for pid in "${!parent[@]}"; do
        [[ ${parent[$pid]} == "$main" && $pid != "$BASHPID" ]] && victims+=("$pid")
        [[ $direct && ${parent[${parent[$pid]}]:-0} == "$main" ]] && victims+=("$pid")
      done
    fi
    if (( ! ${#victims[@]} )); then
      (( ++clean == 2 )) && break
      continue
    fi
    clean=0
    kill -KILL "${victims[@]}" 2> /dev/null
  done
  printf '\036L%s swept %s\036' "$token" "$pass"
}
{
  trap 'sweep tree' USR1
  trap 'sweep shell' USR2
  exec 3<> <(:) # an empty pipe: `read` on it waits without forking, and signals interrupt it
  wait $! 2> /dev/null
  while :; do read -r -u 3 -t 3600; done
} 4>&- &
disown
trap : USR1 USR2

# With job control; otherwise a killed shell leaves the terminal's foreground group dead and the next one stops itself.
stty -echo
set -m
printf '\036L%s up%s\036' "$token" "$direct"
# (After `exec sleep 9`, SIGINT ends the program that replaced the shell, and with it this loop and the container.)
while :; do
  printf '%s' "$start" > $D/rc # each time: the policy may have removed it
  if [[ $direct ]]; then
    SHELL=/bin/sh script -qec "$shell" /dev/null <&3 >&4 2>&1 3>&- 4>&-
  else
    [[ $own ]] && eval "$own"
    "${as[@]}" bash --noediting --rcfile $D/rc -i
  fi
  status=$?
  case $status in
    147 | 148 | 149 | 150) kill -KILL %+ && disown %+ ;; # it stopped itself
  esac 2> /dev/null
  while [[ $direct ]] && read -r -t 0; do read -r -t 1; done
  printf '\036L%s end %s\036' "$token" "$status"
  # until the server has read all that the shell wrote: the next shell's first prompt must not overtake the notice
  [[ $direct ]] && read -r -t 5
done
