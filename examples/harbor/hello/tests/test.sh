#!/bin/bash
# Starts in the work directory, as every test.sh.
if [ "$(cat hello.txt 2>/dev/null)" = 'Hello, world!' ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
