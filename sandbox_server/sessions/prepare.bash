# Runs as root in a container of the task image; what it leaves is frozen into the image that sessions start from.
# $1: workdir; $2: workspace path, $3...: paths hidden from the agent. Prints the image's HEAD.
set -e -o pipefail
export HOME=/root LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0
workdir=$1 workspace=$2
shift 2
for path in "$@"; do rm -rf -- "$path"; done
cd -- "$workdir"
mkdir -p -- "${workspace%/*}"
[[ -e $workspace || -L $workspace ]] || ln -s -- "$workdir" "$workspace"
git() { command git -c safe.directory='*' -c gc.auto=0 -c core.hooksPath=/dev/null "$@"; }
git rev-parse --git-dir > /dev/null 2>&1 || { echo "$workdir is not a git repository" >&2; exit 3; }
[[ -d .git ]] || { echo "$workdir/.git is not a directory; worktrees and submodules are not supported" >&2; exit 3; }
head=$(git rev-parse --verify HEAD)

# 1. No name leads past HEAD: the current branch stays, and tags that HEAD already contains.
current=$(git symbolic-ref -q HEAD || true)
for remote in $(git remote); do git remote remove "$remote"; done
git for-each-ref --format='%(refname)' | while IFS= read -r ref; do
  [[ $ref == "$current" ]] && continue
  [[ $ref == refs/tags/* ]] && git merge-base --is-ancestor "$ref^{commit}" "$head" 2> /dev/null && continue
  git update-ref -d "$ref"
done
rm -rf .git/logs .git/worktrees .git/rebase-* .git/sequencer .git/*_HEAD .git/refs/original .git/refs/stash

# 2. No object does either. `gc --prune=now` alone is not reliable (kept packs, recent objects), so what is left is
# counted: everything in the store must be reachable from a name or the index.
later() {
  comm -13 <({ git rev-list --objects --all HEAD; git ls-files -s | cut -d' ' -f2; git rev-parse --tags; } \
             | cut -d' ' -f1 | sort -u) \
           <(git cat-file --batch-check='%(objectname)' --batch-all-objects | sort -u)
}
if [[ $(later) ]]; then
  rm -f .git/objects/pack/*.keep .git/objects/pack/*.bitmap .git/objects/info/commit-graph .git/objects/pack/multi-pack-index
  rm -rf .git/objects/info/commit-graphs
  git repack -q -a -d
  git prune --expire=now
  git prune-packed -q
  left=$(later)
  [[ -z $left ]] || { echo "objects past HEAD could not be removed: ${left:0:120}" >&2; exit 4; }
fi
[[ -z $(git rev-list --all --not "$head") ]] || { echo "commits past HEAD are still named" >&2; exit 4; }

# 3. The tree as the agent finds it, in a store of our own: the patch is taken against it whatever happens to .git.
# Its own attributes and configuration, so that no filter of the repository or the agent takes part.
own=/var/lib/sandbox/git
mkdir -p "$own"
git init -q --bare "$own"
printf '* -text !eol -ident !filter !working-tree-encoding !diff !merge\n' > "$own/info/attributes"
[[ -f .git/info/exclude ]] && cp .git/info/exclude "$own/info/exclude"
git --git-dir="$own" config core.bare false
git --git-dir="$own" config core.checkStat minimal
git --git-dir="$own" config core.trustctime false
git --git-dir="$own" config core.fileMode true
git --git-dir="$own" config core.autocrlf false
# the repository's index names the files that are tracked though ignored; `add` then stores what lies in the tree
git ls-files -s -z | git --git-dir="$own" update-index -z --index-info
git --git-dir="$own" --work-tree="$workdir" add -A
git --git-dir="$own" write-tree > "$own/base"
echo "$head"
