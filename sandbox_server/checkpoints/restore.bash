# Runs as root in a fresh container of the captured container's image. Stdin: the sizes in bytes of capture.bash's lists
# of folders and of their contents, then the two lists, then the archive.
set -e -o pipefail
export LC_ALL=C
umask 077
lists=$(mktemp -d /run/sandbox/restore.XXXXXX)
trap 'rm -rf -- "$lists"' EXIT
read -r folders kept
head -c "$folders" > "$lists/folders"
head -c "$kept" | sort -z > "$lists/kept"
# in the changed folders: paths that the captured container does not have, or does not have as a folder
xargs -0r sh -c 'find "$@" -mindepth 1 -maxdepth 1 \( -type d -printf "%p/\0" -o -print0 \) 2> /dev/null || :' sh < "$lists/folders" | sort -z \
  | comm -z -23 - "$lists/kept" | xargs -0r rm -rf --
tar -x -f - -P -S -p --same-owner --numeric-owner --xattrs --xattrs-include='user.*' --delay-directory-restore
