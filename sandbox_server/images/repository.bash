# Runs as root in a container of the base image: makes the repository in $1 from the pack at $2, as commit $3 on branch
# main; $4: the commits whose parents are left out, or nothing. Prints the paths of submodules, which stay empty folders.
set -e -o pipefail
export HOME=/root LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
export GIT_DEFAULT_REF_FORMAT=files
workdir=$1 pack=$2 commit=$3 shallow=$4
git() { command git -c safe.directory='*' -c gc.auto=0 -c core.hooksPath=/dev/null "$@"; }
if [[ -e $workdir && ! -d $workdir ]] || [[ -d $workdir && $(ls -A -- "$workdir") ]]; then
  echo "$workdir is not empty in the base image; name another workdir or image" >&2
  exit 3
fi
format=sha1
((${#commit} == 64)) && format=sha256
git init -q --template= --object-format="$format" -- "$workdir"
cd -- "$workdir"
git symbolic-ref HEAD refs/heads/main
git index-pack --stdin < "$pack" > /dev/null
rm -f -- "$pack"
[[ -z $shallow ]] || printf '%s\n' $shallow > .git/shallow
# The tree is the commit's bytes: no line ends converted, no keyword expanded, no filter run (what LFS keeps elsewhere
# stays a pointer), so that nothing shows as changed whatever .gitattributes say.
mkdir -p .git/info
printf '* -text !eol -ident !filter !working-tree-encoding\n' > .git/info/attributes
git update-ref refs/heads/main "$commit"
git reset -q --hard
changed=$(git status --porcelain)
[[ -z $changed ]] || { echo "the tree is not the commit's: ${changed:0:200}" >&2; exit 4; }
rm -rf .git/logs .git/ORIG_HEAD
git ls-files -s | sed -n $'s/^160000 [0-9a-f]* 0\t//p'
