# Supervises a run of tests. All input comes on stdin, with exact lengths, and is read before any graded code runs, so
# that this code finds no file and no open stream through which it could read or change the input.
# First line: nonce, 1 to merge the tests' stderr into their stdout, 1 to run them in a separate shell, lengths of set-up
# and tests, number of files. Then set-up, tests, and for each file a line with two lengths, its path, its content.
# Stdout has only the tests' output. Stderr has the set-up's output, and one line with the nonce before and after the
# tests.
__sb_take() { if (($1)); then LC_ALL=C IFS= read -r -N "$1" "$2"; fi; }
__sb_setup= __sb_tests= __sb_count=0 __sb_paths=() __sb_texts=()
IFS=' ' read -r __sb_nonce __sb_merged __sb_alone __sb_n __sb_m __sb_left || exit 125
__sb_take "$__sb_n" __sb_setup && __sb_take "$__sb_m" __sb_tests || exit 125
while ((__sb_left--)); do
  IFS=' ' read -r __sb_n __sb_m && __sb_path= __sb_text= || exit 125
  __sb_take "$__sb_n" __sb_path && __sb_take "$__sb_m" __sb_text || exit 125
  __sb_paths+=("$__sb_path") __sb_texts+=("$__sb_text")
done
exec < /dev/null

# In this shell, so that the tests get its folder, variables, functions and options.
{ eval "$__sb_setup"; } >&2
__sb_flags=
case $- in *e*) __sb_flags+='set -e;' ;; esac
case $- in *x*) __sb_flags+='set -x;' ;; esac
{ set +ex; } 2> /dev/null

for __sb_path in "${__sb_paths[@]+"${__sb_paths[@]}"}"; do
  if [[ -L $__sb_path || -d $__sb_path ]]; then rm -rf -- "$__sb_path"; fi
  if ! mkdir -p -- "${__sb_path%/*}/" || ! printf %s "${__sb_texts[__sb_count]}" >| "$__sb_path"; then
    printf '\n%s unplaced %s\n' "$__sb_nonce" "$__sb_path" >&2
    exit 125
  fi
  ((++__sb_count))
done
__sb_tests=$__sb_flags$'\n'$__sb_tests
if ((!__sb_alone)); then __sb_tests+=$'\n{ __sb_code=$?; set +ex; } 2> /dev/null'; fi
unset __sb_setup __sb_paths __sb_texts __sb_text __sb_path
unset -f __sb_take

printf '\n%s begin\n' "$__sb_nonce" >&2
case $__sb_alone$__sb_merged in
  00) eval "$__sb_tests" ;;
  01) { eval "$__sb_tests"; } 2>&1 ;;
  10) (eval "$__sb_tests"); __sb_code=$? ;;
  11) (eval "$__sb_tests") 2>&1; __sb_code=$? ;;
esac
printf '\n%s end %s\n' "$__sb_nonce" "$__sb_code" >&2
exit "$__sb_code"
