# Prints the files that a session changed at given paths. Runs as root in a fresh container of the session's image; the
# session's files, which nothing changes any more, are below $1. $2: creation time of the session's container, in the
# format of `find -newerct`: changes are found by their ctime, which nothing in a container can set. $3: workdir; $4...:
# absolute paths.
# Prints nothing if nothing was changed, else a line with the sizes of two lists, the lists, and a gzipped tar archive.
# Each name in the lists ends in NUL: the changed folders; everything in them (anything else there was deleted), folders
# with a slash. Stderr has a line for each path that is left out.
# Exit code 0: done; 4: the work tree is gone; 5: the disk is full.
set -o pipefail
export LC_ALL=C
umask 077
files=$1 since=$2 workdir=$3
shift 3
lists=$(mktemp -d) || exit 5
trap 'rm -rf -- "$lists"' EXIT
cd -- "${files:-/}" || exit 1

# messages of find and tar contain the agent's names, in quotes; the reason is at the end of the line
full() { grep -q ': No space left on device$' "$lists/said"; }

# a link that the agent put into a path would lead out of its files
reached() {
  local name part=.
  while IFS= read -r -d / name; do
    part+=${name:+/$name}
    [[ -d $part && ! -L $part ]] || return 1
  done <<< "${1%/*}/"
  [[ -e .$1 && ! -L .$1 ]]
}

: > "$lists/folders" && : > "$lists/others" || exit 5
for root in "$@"; do
  if ! reached "$root"; then
    [[ $root == "$workdir" ]] && exit 4
    [[ -e .$root || -L .$root ]] && echo "left out: $root" >&2
    continue
  fi
  find ".$root" -xdev -newerct "$since" \( -type d -print0 -o -fprint0 "$lists/other" \) >> "$lists/folders" \
    2> "$lists/said" || { full && exit 5; }
  cat "$lists/other" >> "$lists/others" || exit 5
done
# Left out: sockets, pipes and devices, and files that vanish meanwhile where the agent's processes still run.
xargs -0r sh -c 'find "$@" -maxdepth 0 \( -type f -o -type l \) -print0 2> /dev/null || :' sh < "$lists/others" \
  | sort -z > "$lists/kinds" || exit 5
sort -z -o "$lists/folders" -- "$lists/folders" || exit 5
[[ -s $lists/folders || -s $lists/kinds ]] || exit 0
xargs -0r sh -c 'find "$@" -mindepth 1 -maxdepth 1 \( -type d -printf "%p/\0" -o -print0 \) 2> /dev/null || :' sh < "$lists/folders" \
  | sort -z > "$lists/within" || exit 5
printf 'sandbox-files %d %d\n' "$(stat -c %s "$lists/folders")" "$(stat -c %s "$lists/within")"
cat "$lists/folders" "$lists/within"
tar -c -f - -S --format=posix --pax-option='exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime' --numeric-owner \
  --no-recursion --ignore-failed-read --null -T "$lists/folders" -T "$lists/kinds" 2> "$lists/said" | gzip -n
code=$?
((code > 1)) && { tail -n 1 "$lists/said" >&2; full && exit 5; exit 6; }
exit 0
