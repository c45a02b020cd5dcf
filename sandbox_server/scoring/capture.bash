# Runs as root in a fresh container of the session's image, with the session's files at rest below $2: prints the diff of
# their tree against the one that the image was prepared with. On stderr `no-git` when the agent removed its .git,
# `partial` when a file could not be read. $1: workdir. $3: when the session's container was made.
# Uses nothing of the agent's: not its programs and libraries, nor its repository's index, configuration and filters.
# Exit 0: the diff; 3: there is no base to compare with; 4: the tree is gone; 5: the disk is full; 6: git gave up.
set -e -o pipefail
own=/var/lib/sandbox/git
[[ -s $own/base ]] || exit 3
# where the image has the folder; links that the agent put into this path lead out of its files
tree=$(cd -- "$1" && pwd -P) || exit 3
part=$2
while IFS= read -r -d / name; do
  part+=${name:+/$name}
  [[ -d ${part:-/} && ( -z $name || ! -L $part ) ]] || exit 4
done <<< "$tree/"
cd -P -- "$2$tree" 2> /dev/null || exit 4
unset "${!GIT_@}"
export HOME=/nonexistent LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
export GIT_DIR=$own GIT_WORK_TREE=$PWD
# an index of this run alone: where nothing else has the session's files, a capture that was cut off may still run
export GIT_INDEX_FILE=$own/capture.$$
cp "$own/index" "$GIT_INDEX_FILE" || exit 5
# What git would pass over: a change that kept size and time of its file (touched, so that git reads it), and what is
# no file any more. Told: repositories inside the tree.
find . -path ./.git -prune -o -name .git -prune -print0 -o -type f -newerct "$3" -exec touch -c -- {} + -o \
  \( -type p -o -type s -o -type b -o -type c \) -exec rm -f -- {} + > "$GIT_INDEX_FILE.inner" 2> /dev/null \
  || git read-tree "$(< "$own/base")"
if [[ -s $GIT_INDEX_FILE.inner ]]; then
  # Each would be a link to a commit that nobody has; its files are taken. Links of the base stay.
  links=$'\n'$(git -c core.quotePath=false ls-files -s | sed -n 's/^160000 [^\t]*\t//p')$'\n'
  while IFS= read -r -d '' inner; do
    outer=${inner#./} outer=${outer%/.git}
    [[ $links == *$'\n'"$outer"$'\n'* ]] || rm -rf -- "$inner"
  done < "$GIT_INDEX_FILE.inner" || :  # what a process of the agent removes meanwhile is no matter
fi
# Whether what git said is of a full disk. It also says the agent's names, so there must be less room than what was
# changed may need. (A patch of more than 2 GB is none.)
full() {
  [[ $1 == *"No space left"* || $1 == *"quota exceeded"* ]] || return
  local kb need=0 blocks size
  while read -r kb; do ((need += kb)); done < <(find . -path ./.git -prune -o -type f -newerct "$2" -printf '%k\n' 2> /dev/null)
  read -r blocks size < <(stat -f -c '%a %S' -- "$own")
  ((blocks * size >> 10 < (need < 2 << 20 ? need : 2 << 20) + (64 << 10)))
}
# As one pack: to make a file for each object takes twice the time where there are thousands.
add=(git -c core.bigFileThreshold=1 add -A)
if ! said=$("${add[@]}" 2>&1); then
  full "$said" "$3" && exit 5
  code=0
  "${add[@]}" --ignore-errors >&2 || code=$?
  (( code < 128 )) || exit 6  # the index was not written
  (( code == 0 )) || echo partial >&2
fi
# New files that the agent's repository tracks although they are ignored (`git add -f`). Of its index only names are read,
# by our configuration; an index that git cannot read has none.
if [[ -f .git/index ]]; then
  GIT_INDEX_FILE=.git/index git ls-files -z -ci --exclude-standard 2> /dev/null | while IFS= read -r -d '' name; do
    [[ -e $tree/$name || -L $tree/$name ]] || printf '%s\0' "$name"
  done > "$GIT_INDEX_FILE.forced" || :
  git update-index -z --add --stdin < "$GIT_INDEX_FILE.forced" 2> /dev/null || echo partial >&2
fi
[[ -e .git || -L .git ]] || echo no-git >&2
git diff --cached --binary --full-index --no-color --no-ext-diff --no-textconv --no-renames \
  --src-prefix=a/ --dst-prefix=b/ "$(< "$own/base")"
