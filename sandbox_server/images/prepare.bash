# Runs as root in a container of the sealed image (seal.bash); what it leaves is frozen into the image that sessions
# start from. $1: workdir; $2: workspace path, $3...: paths hidden from the agent.
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

# The tree as the agent finds it, in a store of our own: the patch is taken against it whatever happens to .git.
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
# All content goes into one pack: loose objects can take ten times as long, and each fills a block of the image's layer.
# Not in huge trees, because for each file `add` searches the list of all that it has put into the pack.
smallest=1
(($(git ls-files | wc -l) < 100000)) || smallest=512m
git --git-dir="$own" -c core.bigFileThreshold=$smallest --work-tree="$workdir" add -A
git --git-dir="$own" write-tree > "$own/base"
