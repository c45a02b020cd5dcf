# Prints the diff of a session's tree against the tree of its prepared image. Runs as root in a fresh container of that
# image; the session's files, which nothing changes any more, are below $2. $1: workdir; $3: creation time of the
# session's container. Stderr: `no-git` if the agent removed .git, `partial` if a file could not be read, `hidden` with the
# number and the first names of new files that are left out because .gitignore says so.
# Uses no program, library, git index, configuration or filter of the agent.
# Exit code 0: done; 3: the image has no base to compare with; 4: the tree is gone; 5: the disk is full; 6: git failed.
set -e -o pipefail
own=/var/lib/sandbox/git
[[ -s $own/base ]] || exit 3
# the folder's real path in the image; a link that the agent put into this path would lead out of its files
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
# an index for this run alone: an earlier capture that was cut off may still be running here
export GIT_INDEX_FILE=$own/capture.$$
cp "$own/index" "$GIT_INDEX_FILE" || exit 5
# Git would overlook a change that kept the file's size and time: touch these files, so that git reads them. It would
# also overlook what has become a FIFO, socket or device: remove those. List the repositories inside the tree.
find . -path ./.git -prune -o -name .git -prune -print0 -o -type f -newerct "$3" -fprint0 "$GIT_INDEX_FILE.newer" -exec touch -c -- {} + -o \
  \( -type p -o -type s -o -type b -o -type c \) -exec rm -f -- {} + > "$GIT_INDEX_FILE.inner" 2> /dev/null \
  || git read-tree "$(< "$own/base")"
if [[ -s $GIT_INDEX_FILE.inner ]]; then
  # Git would store each as a link to a commit that nobody else has; take its files instead. Links of the base stay. Leave
  # out a further work tree of the same repository (`git worktree add`) and a clone or copy of it, as the benchmark's own
  # diff does: its tests would be collected beside the true ones.
  mapfile -d '' -t based < <(git ls-files -z | head -z -n 200)
  is_copy() {  # whether folder $1 has three quarters of the base's first files
    local name there=0
    for name in "${based[@]}"; do
      [[ ! -e $1/$name && ! -L $1/$name ]] || ((++there))
    done
    ((there * 4 >= ${#based[@]} * 3 && there > 2))
  }
  links=$'\n'$(git -c core.quotePath=false ls-files -s | sed -n 's/^160000 [^\t]*\t//p')$'\n'
  while IFS= read -r -d '' inner; do
    outer=${inner#./} outer=${outer%/.git}
    [[ $links == *$'\n'"$outer"$'\n'* ]] && continue
    if [[ -f $inner && ! -L $inner && $(head -c 4096 -- "$inner" | tr -d '\0') == "gitdir: "*/worktrees/* ]] \
      || is_copy "$outer"; then
      [[ -n $(git --literal-pathspecs ls-files -- "$outer") ]] || inner=$outer
    fi
    rm -rf -- "$inner"
  done < "$GIT_INDEX_FILE.inner" || :  # ignore what a process of the agent removes meanwhile
fi
# Whether git failed because the disk is full. Its message may contain names that the agent chose, so the free space must
# also be less than the changed files may need (at most 2 GB: a larger patch is refused anyway).
full() {
  [[ $1 == *"No space left"* || $1 == *"quota exceeded"* ]] || return
  local kb need=0 blocks size
  while read -r kb; do ((need += kb)); done < <(find . -path ./.git -prune -o -type f -newerct "$2" -printf '%k\n' 2> /dev/null)
  read -r blocks size < <(stat -f -c '%a %S' -- "$own")
  ((blocks * size >> 10 < (need < 2 << 20 ? need : 2 << 20) + (64 << 10)))
}
# As one pack: with thousands of objects, a file for each takes twice as long.
add=(git -c core.bigFileThreshold=1 add -A)
if ! said=$("${add[@]}" 2>&1); then
  full "$said" "$3" && exit 5
  code=0
  "${add[@]}" --ignore-errors >&2 || code=$?
  (( code < 128 )) || exit 6  # the index was not written
  (( code == 0 )) || echo partial >&2
fi
# New files that the agent's repository tracks although they are ignored (`git add -f`). Only names are read from its
# index, with our configuration; an index that git cannot read counts as empty.
if [[ -f .git/index ]]; then
  GIT_INDEX_FILE=.git/index git ls-files -z -ci --exclude-standard 2> /dev/null | while IFS= read -r -d '' name; do
    [[ -e $tree/$name || -L $tree/$name ]] || printf '%s\0' "$name"
  done > "$GIT_INDEX_FILE.forced" || :
  git update-index -z --add --stdin < "$GIT_INDEX_FILE.forced" 2> /dev/null || echo partial >&2
fi
[[ -e .git || -L .git ]] || echo no-git >&2
# The benchmark's own diff leaves them out too, so a fix may fail for want of them. Caches are not worth a word.
hidden=0 names=
while IFS= read -r -d '' name; do
  case $name in */__pycache__/* | *.pyc | */.*_cache/*) continue ;; esac
  if ((++hidden <= 5)); then printf -v names '%s, %q' "$names" "${name:2:200}"; fi
done < <(head -z -n 20000 -- "$GIT_INDEX_FILE.newer" | git check-ignore -z --stdin 2> /dev/null)
((hidden == 0)) || printf 'hidden %s (%s)\n' "$hidden" "${names#, }" >&2
git diff --cached --binary --full-index --no-color --no-ext-diff --no-textconv --no-renames \
  --src-prefix=a/ --dst-prefix=b/ "$(< "$own/base")"
