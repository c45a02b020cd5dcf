# Runs as root in the session's container: prints the diff of the tree against the one that the image was prepared
# with. On stderr `no-git` when the agent removed its .git, `partial` when a file could not be read. $1: workdir.
# Uses nothing of the agent's repository: not its index, its configuration, its filters.
# Exit 0: the diff; 3: there is no base to compare with; 4: the tree is gone; 5: the disk is full; 6: git gave up.
set -e -o pipefail
own=/var/lib/sandbox/git
[[ -s $own/base ]] || exit 3
cd -- "$1" 2> /dev/null || exit 4
unset "${!GIT_@}"
export HOME=/nonexistent LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
export GIT_DIR=$own GIT_WORK_TREE=$PWD
# an index of this run alone: a capture that was cut off may have left its lock, or still run
GIT_INDEX_FILE=$(mktemp "$own/capture.XXXXXX") || exit 5
export GIT_INDEX_FILE
trap 'rm -f "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock"' EXIT
cp "$own/index" "$GIT_INDEX_FILE" || exit 5
# What git would pass over: a change that kept size and time of its file (touched, so that git reads it), and what is
# no file any more. /.dockerenv is as old as the container; without it everything is read.
find . -path ./.git -prune -o -type f -newercc /.dockerenv -exec touch -c -- {} + 2> /dev/null \
  || git read-tree "$(< "$own/base")"
find . -path ./.git -prune -o \( -type p -o -type s -o -type b -o -type c \) -exec rm -f -- {} + || :
# A repository inside the tree would be a link to a commit that nobody has; its files are taken. Links of the base stay.
links=$'\n'$(git -c core.quotePath=false ls-files -s | sed -n 's/^160000 [^\t]*\t//p')$'\n'
find . -path ./.git -prune -o -name .git -prune -print0 | while IFS= read -r -d '' inner; do
  outer=${inner#./} outer=${outer%/.git}
  [[ $links == *$'\n'"$outer"$'\n'* ]] || rm -rf -- "$inner"
done || :  # what a process of the agent removes meanwhile is no matter
if ! said=$(git add -A 2>&1); then
  [[ $said == *"No space left"* || $said == *"quota exceeded"* ]] && exit 5
  code=0
  git add -A --ignore-errors >&2 || code=$?
  (( code < 128 )) || exit 6  # the index was not written
  (( code == 0 )) || echo partial >&2
fi
[[ -e .git ]] || echo no-git >&2
git diff --cached --binary --full-index --no-color --no-ext-diff --no-textconv --no-renames \
  --src-prefix=a/ --dst-prefix=b/ "$(< "$own/base")"
