#!/bin/bash
[ -e /verifier-only ] && [ "$PWD" = /check ] || exit 1
same=$(head -c 4096 /dev/zero | tr '\0' '\253' | cmp - /srv/report.bin && cat /work/notes/count)
[ "$same" = 4096 ]
echo "$((!$?))" >/logs/verifier/reward.txt
