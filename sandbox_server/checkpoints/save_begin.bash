# The script that a session's shell sources between two actions: this file, save_variables.bash, save_settings.bash and
# save.bash, one after the other. $1: a nonce; $2: the shell's `$?`; $3: 0 if its stderr is the terminal; $4...: its
# positional parameters.
# /run/sandbox/shell.traps has the shell's traps. Writes /run/sandbox/shell, a script that recreates this shell's state in
# another shell of the same image. The first line of that script is a comment with the file descriptors that cannot be
# recreated; its last line is the nonce, which proves that it is complete. Forks nothing; the service's names begin with
# __sb_.
\builtin shopt -q expand_aliases && __sb_expand=-s || __sb_expand=-u
\builtin shopt -u expand_aliases
[[ $- == *k* ]] && __sb_keyword=-k || __sb_keyword=+k
\builtin set +k # with it, `local a=b` sets nothing
# Only lines after this one are safe from aliases.
