# Runs as root in the session's container: prints the diff of the tree against the one that the image was prepared
# with; `no-git` on stderr when the agent removed its .git. $1: workdir. Uses nothing of the agent's repository: not its index, its configuration, its filters.
# Exit 0: the diff; 3: there is no base to compare with; 4: the tree is gone; 5: the disk is full.
set -e -o pipefail
own=/var/lib/sandbox/git
[[ -s $own/base ]] || exit 3
cd -- "$1" 2> /dev/null || exit 4
unset "${!GIT_@}"
export HOME=/nonexistent LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
export GIT_DIR=$own GIT_WORK_TREE=$PWD GIT_INDEX_FILE=$own/capture.index
cp "$own/index" "$GIT_INDEX_FILE"
if ! said=$(git add -A 2>&1); then
  [[ $said == *"No space left"* || $said == *"quota exceeded"* ]] && exit 5
  git add -A --ignore-errors 2> /dev/null || echo partial >&2
fi
[[ -e .git ]] || echo no-git >&2
exec git diff --cached --binary --full-index --no-color --no-ext-diff --no-textconv --no-renames \
  --src-prefix=a/ --dst-prefix=b/ "$(< "$own/base")"
