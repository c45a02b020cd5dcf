# End of the shell's start file, after state.bash: reports the shell ready.
unset TINI_KILL_PROCESS_GROUP
PROMPT_COMMAND='\__sb_p "$?"'
__sb_n=0000000000000000
