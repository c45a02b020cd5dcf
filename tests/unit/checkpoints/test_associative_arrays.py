"""save_variables.bash: associative arrays list their keys in a copy as in the original, also those that come later."""

import os
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

EXAMPLES = int(os.environ.get("SANDBOX_TEST_ARRAYS", "30"))
"""Random arrays for each seed."""
BASH = os.environ.get("SANDBOX_TEST_BASH") or shutil.which("bash")

PROGRAM = r"""
. "$1"; RANDOM=$2; __sb_file=$4; wrong=0
odd=('a b' '*x' ']' '[' "'" '"' '$x' '`' '\' $'\n' é $'\xff' = '!' '~' '(' ')' '#' ' ' 'a]b' '$(date)' '&' ';')
key() {
  local n
  k=
  for ((n = RANDOM % 3; n >= 0; n--)); do
    if ((RANDOM % 3)); then k+=$((RANDOM % 1000)); else k+=${odd[RANDOM % ${#odd[@]}]}; fi
  done
}
# adds and removes keys of the arrays $2...
change() {
  local n array
  for ((n = 0; n < $1; n++)); do
    key
    for array in "${@:2}"; do printf -v "$array[\$k]" %s "$n"; done
    ((RANDOM % 5)) || { key; for array in "${@:2}"; do unset "$array[\$k]"; done; }
  done
}
one() {
  local lists=(2 10 60 300 $((RANDOM % 3000))) n
  case $((RANDOM % 5)) in # how it began
    0) declare -g arr; declare -gA arr ;;
    1) declare -g arr=x; declare -gA arr ;;
    2) declare -gA arr=([a]=1 [b]=2) ;;
    *) declare -gA arr ;;
  esac
  change "${lists[RANDOM % 5]}" arr
  ((RANDOM % 4)) || arr+=([z1]=1 ['y 2']=2)
  ((RANDOM % 8)) || { for n in {1..2200}; do arr[b$n]=; done; for n in {1..2200}; do unset "arr[b$n]"; done; }
  ((RANDOM % 9)) || arr=()
  ((RANDOM % 5)) || declare -g -i arr
  ((RANDOM % 4)) || readonly arr
  shopt -u localvar_inherit nocasematch
  ((RANDOM % 4)) || shopt -s localvar_inherit nocasematch
  local before="${!arr[*]}"
  declare -p arr > "$__sb_file.list"
  mapfile __sb_lines < "$__sb_file.list"
  __sb_lines[0]=${__sb_lines[0]#declare -* }
  { __sb_save_table arr; printf 'declare -A '; printf %s "${__sb_lines[@]}"; } > "$__sb_file.script" 2> /dev/null
  shopt -u localvar_inherit nocasematch
  sed -e 's/^declare -- arr/declare -g -- copy/; s/^declare -A arr/declare -gA copy/' \
    -e 's/; do arr\[/; do copy[/; s/^arr=()/copy=()/' "$__sb_file.script" > "$__sb_file.copy"
  . "$__sb_file.copy"
  [[ $before == "${!arr[*]}" && $before == "${!copy[*]}" && "${arr[*]}" == "${copy[*]}" ]] || return
  [[ ${arr@a} == *r* ]] && return
  declare -g +i arr
  change "${lists[RANDOM % 5]}" arr copy
  [[ "${!arr[*]} ${arr[*]}" == "${!copy[*]} ${copy[*]}" ]]
}
for ((example = 0; example < $3; example++)); do
  ( RANDOM=$(($2 * 1000 + example)); one ) || { wrong=1; echo "example $example: $(head -c 300 "$__sb_file.script")"; }
done
exit $wrong
"""


@pytest.mark.skipif(BASH is None, reason="no bash here")
@pytest.mark.parametrize("seed", [1, 2])
def test_keys_come_in_the_same_order(tmp_path: Path, seed: int) -> None:
    """`${!array[@]}` differs in a copy: at once, or after keys were added that make the table grow."""
    with resources.as_file(resources.files("sandbox_server.checkpoints") / "save_variables.bash") as script:
        argv = [str(BASH), "-c", PROGRAM, "bash", str(script), str(seed), str(EXAMPLES), str(tmp_path / "state")]
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done
