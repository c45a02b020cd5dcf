#!/bin/bash
[ "$(cat /srv/book/entries.txt)" = $'rent 900\ntea 12' ]
echo "$((!$?))" >/logs/verifier/reward.txt
