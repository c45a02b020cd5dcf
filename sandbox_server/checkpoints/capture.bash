# Runs as root beside a session's shell and prints the changed paths on stdout, as a tar archive.
# $1 is `since` or `given`. `since`: $2 is the container's creation time in the format of `find -newerct`; changed paths
# are found by their ctime, which nothing in a container can set. `given`: stdin has the list of changed folders, of $2
# bytes, and then the list of other changed paths; each name ends in NUL.
# Stderr has two lists for restore.bash and two of what is left out. Each word ends in NUL, and each list ends with an empty
# word: the changed folders; everything in them (anything else there was deleted), folders with a slash; the names of
# running programs; the volumes that the image declares.
set -o pipefail
export LC_ALL=C
umask 077
how=$1 what=$2
lists=$(mktemp -d /run/sandbox/capture.XXXXXX) || exit 1
trap 'rm -rf -- "$lists"' EXIT

fail() {
  printf '%s' "$1" >&2
  exit 1
}

# descendants of the init, except the session's shell and the loop that restarts it
declare -A parent name
for stat in /proc/[0-9]*/stat; do
  { read -r line < "$stat"; } 2> /dev/null || continue
  pid=${line%% *} comm=${line#*(}
  set -- ${line##*) }
  [[ $1 == [ZX] ]] || parent[$pid]=$2 name[$pid]=${comm%)*}
done
main=
for pid in "${!parent[@]}"; do # boot.bash is the init's oldest child
  [[ ${parent[$pid]} == 1 && (! $main || $pid -lt $main) ]] && main=$pid
done
running=()
for pid in "${!parent[@]}"; do
  up=${parent[$pid]}
  [[ $pid == 1 || $pid == "$main" || $up == "$main" || ${parent[$up]-} == "$main" && ${name[$up]} == script ]] && continue
  while [[ ${up:-0} != 0 && $up != 1 ]]; do up=${parent[$up]-0}; done
  [[ $up == 1 ]] && running+=("${name[$pid]}")
done

# leave out the engine's mounts
mapfile -t mounts < /proc/self/mountinfo
memory=(/dev/shm) volumes=()
for line in "${mounts[@]}"; do
  line=${line#* * * * }
  printf -v line %b "${line%% *}"
  case $line/ in
    /tmp/) memory+=(/tmp) ;; # mounted by gVisor; the engine does not list it
    // | /proc/* | /sys/* | /dev/* | /run/* | /etc/*) ;; # the engine's, in every container
    *) [[ -d $line ]] && volumes+=("$line") ;;
  esac
  [[ $line == / || $line == /dev/shm ]] || printf '%s\n' "$line"
done > "$lists/mounts"
case $how in
  given) { head -c "$what" > "$lists/all" && cat > "$lists/others"; } || fail 'no room for a list in /run/sandbox' ;;
  since)
    # (a path that vanishes meanwhile is no error)
    find / -xdev -newerct "$what" ! -type s \( -type d -fprint0 "$lists/all" -o -print0 \) > "$lists/others" 2> "$lists/said"
    [[ -e $lists/said && $(< "$lists/said") != *"No space"* ]] || fail 'no room for a list in /run/sandbox'
    ;;
esac
for list in all others; do
  grep -zvxFf "$lists/mounts" "$lists/$list" > "$lists/own"
  (($? > 1)) && fail 'its changed files cannot be listed: GNU grep is needed, and room in /run/sandbox'
  mv -- "$lists/own" "$lists/$list"
done
for folder in "${memory[@]}"; do
  [[ -d $folder ]] || continue
  find "$folder" -xdev ! -type s \( -type d -fprint0 "$lists/shm" -o -print0 \) >> "$lists/others" 2> /dev/null
  cat "$lists/shm" >> "$lists/all"
done
# (tar would leave them out)
grep -zqE '.{4096}' "$lists/all" "$lists/others" && fail 'a path has more than 4,095 bytes, which no program can open'

tar -c -f - -P -S --format=posix --pax-option='exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime' --numeric-owner \
  --xattrs --xattrs-include='user.*' --no-recursion --ignore-failed-read --null -T "$lists/all" -T "$lists/others" \
  2> "$lists/said"
# 1: a file changed while it was read
(($? > 1)) && fail "$(tail -n 1 "$lists/said")"
{
  mapfile -d '' -t folders < "$lists/all"
  ((${#folders[@]})) && printf '%s\0' "${folders[@]}"
  printf '\0'
  for ((at = 0; at < ${#folders[@]}; at += 1000)); do
    find "${folders[@]:at:1000}" -mindepth 1 -maxdepth 1 \( -type d -printf '%p/\0' -o -print0 \)
  done
  printf '\0'
  ((${#running[@]})) && printf '%s\0' "${running[@]}"
  printf '\0'
  ((${#volumes[@]})) && printf '%s\0' "${volumes[@]}"
  printf '\0'
} >&2 2> /dev/null
exit 0
