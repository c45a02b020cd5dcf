#!/bin/bash
[ -e /verifier-only ] && [ "$PWD" = /check ] && [ "$(id -un)" = nobody ] || exit 1
same=$(head -c 4096 /dev/zero | tr '\0' '\253' | cmp - /srv/report.bin && cat /work/notes/count)
[ "$same" = 4096 ] && [ "$(cat /work/notes/state)" = done ]
echo "$((!$?))" >/logs/verifier/reward.txt
