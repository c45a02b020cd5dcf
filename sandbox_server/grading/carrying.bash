# Runs as root in a fresh grading container and restores the files that carry.bash printed, which are on stdin.
# $1...: absolute paths that may be written. Anything else in the archive is unpacked into a separate folder and dropped.
set -e -o pipefail
export LC_ALL=C
umask 077
lists=$(mktemp -d)
trap 'rm -rf -- "$lists"' EXIT
read -r _ folders within
head -c "$folders" > "$lists/folders"
head -c "$within" | sort -z > "$lists/within"
mkdir -- "$lists/files"
# links that lead out of the folder are created last, so that nothing is written through them
# -i: another archive follows if the task takes files of its services too (scoring/task_artifacts.py)
tar -x -z -i -f - -C "$lists/files" -S -p --same-owner --numeric-owner --delay-directory-restore
# folders on the way to a changed file, which are not in the archive: as they are here, and new ones for all to read
cd -- "$lists/files"
find . -mindepth 1 -type d -print0 | sort -z | comm -z -23 - <(sort -z "$lists/folders") > "$lists/passed"
xargs -0r chmod 755 -- < "$lists/passed"
cd /
xargs -0r sh -c 'find "$@" -maxdepth 0 -type d -print0 2> /dev/null || :' sh < "$lists/passed" > "$lists/here"
tar -c --no-recursion --null -T "$lists/here" | tar -x -C "$lists/files" -p --same-owner --numeric-owner
# in the changed folders: paths that the agent's container does not have, or does not have as a folder
while IFS= read -r -d '' folder; do
  for root in "$@"; do
    [[ $folder/ == ".$root/"* ]] && printf '%s\0' "$folder" && break
  done
done < "$lists/folders" > "$lists/written"
xargs -0r sh -c 'find "$@" -mindepth 1 -maxdepth 1 \( -type d -printf "%p/\0" -o -print0 \) 2> /dev/null || :' sh \
  < "$lists/written" | sort -z | comm -z -23 - "$lists/within" | xargs -0r rm -rf --
for root in "$@"; do
  part=$lists/files
  while IFS= read -r -d / name; do
    part+=${name:+/$name}
    [[ -d $part && ! -L $part ]] || continue 2
  done <<< "${root%/*}/"
  source=$lists/files$root
  if [[ -d $source && ! -L $source ]]; then
    (umask 022 && mkdir -p -- "$root")
    cp -a -- "$source/." "$root/"
  elif [[ -f $source && ! -L $source ]]; then
    (umask 022 && mkdir -p -- "${root%/*}/")
    cp -a -- "$source" "$root"
  fi
done
