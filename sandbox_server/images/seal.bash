# Runs as root in a container of the task image, set up; what it leaves is frozen into the image that gradings start
# from, and that the sessions' image is made of.
# $1: workdir; $2: shell text that checks the tests out of a later commit, or nothing; $3: folder for them. Prints the
# image's HEAD.
set -e -o pipefail
export HOME=/root LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0
workdir=$1 tests=$2 kept=$3
cd -- "$workdir"
git() { command git -c safe.directory='*' -c gc.auto=0 -c core.hooksPath=/dev/null "$@"; }
[[ $tests || -e .git || -L .git ]] || exit 0 # no history at all, and no session either
[[ -d .git && ! -L .git ]] || { echo "$workdir/.git is not a directory; worktrees and submodules are not supported" >&2; exit 3; }
head=$(git rev-parse --verify HEAD)

# 0. The tests, while their commit is still there. Kept outside the tree, to be placed over a patch: an index and a folder
# of their own take exactly what the text checks out.
if [[ $tests ]]; then
  rm -rf -- "$kept"
  mkdir -p -- "$kept"
  chmod 700 -- "$kept"
  cp .git/index "$kept.index" # for the attributes that it holds
  if ! said=$(
    export GIT_DIR=$PWD/.git GIT_WORK_TREE=$kept GIT_INDEX_FILE=$kept.index
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
    cd -- "$kept" && bash -c "$tests" 2>&1
  ); then
    echo "the tests cannot be checked out: $tests: $said" >&2
    exit 5
  fi
  rm -f -- "$kept.index"
fi

# 1. No name leads past HEAD: the current branch stays, and tags that HEAD already contains.
current=$(git symbolic-ref -q HEAD || true)
for remote in $(git remote); do git remote remove "$remote"; done
kept_names=$({ echo "$current"; git for-each-ref --merged="$head" --format='%(refname)' refs/tags; } | sort)
# all at once: a repository may have thousands of names, and each command of its own takes a while
git for-each-ref --format='%(refname)' | sort | comm -23 - <(echo "$kept_names") \
  | sed 's/.*/option no-deref\ndelete &/' | git update-ref --stdin
# what else lies there (reflogs, FETCH_HEAD and its kin, halves of a rebase, recorded merges, lost-found) is not needed
shopt -s dotglob nullglob
for entry in .git/*; do
  case ${entry#.git/} in
    HEAD | branches | config | description | hooks | index | info | modules | objects | packed-refs | refs | shallow) ;;
    *) rm -rf -- "$entry" ;;
  esac
done
rm -rf .git/refs/original .git/refs/stash

# 2. No object does either. `gc --prune=now` alone is not reliable (kept packs, recent objects), so what may stay is packed
# anew, and what is left is counted: everything in the store must be reachable from a name or the index.
partial= # of a partial clone objects may be missing
for marker in .git/objects/pack/*.promisor; do partial=--missing=allow-any; done
all() { git cat-file --batch-check='%(objectname)' --batch-all-objects | sort -u; }
reachable=$(mktemp) # found once: seconds in a large history
{ git rev-list --objects $partial --all HEAD; git ls-files -s | cut -d' ' -f2; git rev-parse --tags; } \
  | cut -d' ' -f1 | sort -u > "$reachable"
later() { comm -13 "$reachable" <(all); }
if [[ $(later) ]]; then
  # `repack` and `prune` would each walk the history again
  pack=$(comm -12 "$reachable" <(all) | git pack-objects -q --delta-base-offset .git/objects/pack/pack)
  [[ -z $partial ]] || : > ".git/objects/pack/pack-$pack.promisor"
  find .git/objects/pack -type f ! -name "pack-$pack.*" -delete
  rm -rf .git/objects/[0-9a-f][0-9a-f] .git/objects/info/commit-graph .git/objects/info/commit-graphs
  left=$(later)
  [[ -z $left ]] || { echo "objects past HEAD could not be removed: ${left:0:120}" >&2; exit 4; }
fi
rm -f -- "$reachable"
[[ -z $(git rev-list --all --not "$head") ]] || { echo "commits past HEAD are still named" >&2; exit 4; }
echo "$head"
