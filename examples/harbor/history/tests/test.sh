#!/bin/bash
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
if [ "$(git log --format=%s main)" = $'Add the price list\nBegin' ] && [ "$(cat current)" = 'tea 3' ] && [ -L current ] \
    && [ -s build.log ] && [ ! -e README.md ]; then
    echo 1.0 >/logs/verifier/reward.txt
else
    echo 0.0 >/logs/verifier/reward.txt
fi
