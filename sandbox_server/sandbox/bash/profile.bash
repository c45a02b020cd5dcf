# Starts like a login shell and reports, in order: `__sb_look`, the shell's state, every command of the profile, its
# exit status, the shell's state afterwards. The profile's own output goes to stderr.
exec {__sb_told}>&1 >&2
__sb_part=$'\x1d'
__sb_dump='declare -p; printf %s "$__sb_part"; declare -F; alias -p; shopt -p; set +o; umask; pwd; trap -p; printf "%s%s" "$!" "$__sb_part"'
{ (
  shopt -s nullglob
  LC_ALL=C
  __sb_look
  printf %s "$__sb_part"
); eval "$__sb_dump"; } >&"$__sb_told"
BASH_XTRACEFD=$__sb_told PS4=$'\x1e '
set -x
[ -r /etc/profile ] && . /etc/profile
__sb_status=$?
if [ -r ~/.bash_profile ]; then
  . ~/.bash_profile
elif [ -r ~/.bash_login ]; then
  . ~/.bash_login
elif [ -r ~/.profile ]; then
  . ~/.profile
fi
__sb_status+=$?
set +x
{ printf '%s%s%s' "$__sb_part" "$__sb_status" "$__sb_part"; eval "$__sb_dump"; } >&"$__sb_told"
