# Takes over the state that the session's shell has saved (`__sb_s` in rc.bash): of its two files the newest whole one.
__sb_saves=0
for __sb_f in /run/sandbox/env0 /run/sandbox/env1; do
  [[ -f $__sb_f ]] && mapfile __sb_l < "$__sb_f" && [[ ${__sb_l[*]: -1} =~ ^'# '([0-9]+)$'\n'$ ]] &&
    ((BASH_REMATCH[1] > __sb_saves)) && __sb_saves=${BASH_REMATCH[1]}
done 2> /dev/null
unset __sb_f __sb_l
((__sb_saves)) && . "/run/sandbox/env$((__sb_saves & 1))" 2> /dev/null
