# Runs a template's ready command ($0) as its user. E2B's images have `ss`, and its SDK's waitForPort asks it for open
# ports; where the image has none, this one prints a line for each, or for that of `sport = :PORT`.
ss() {
  local file at state rest wanted=
  [[ ${*: -1} != :* ]] || wanted=${*: -1}
  for file in tcp tcp6 udp udp6; do
    {
      read -r rest
      while read -r _ at _ state rest; do
        at=:$((16#${at##*:}))
        # a TCP socket that listens, a UDP socket without a peer
        [[ $state != 0A && $state != 07 ]] || [[ -n $wanted && $at != "$wanted" ]] ||
          echo "${file%6} LISTEN 0 0 *$at *:*"
      done
    } <"/proc/net/$file"
  done 2>/dev/null
}
type -P ss >/dev/null || export -f ss
unset HOME
export HOME=~ USER="$(id -un)"
exec bash -c "$0"
