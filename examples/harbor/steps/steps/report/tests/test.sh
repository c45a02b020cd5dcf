#!/bin/bash
. /tests/right.sh
sum=$(right january.csv february.csv)
reward=0
[ -n "$sum" ] && [ "$(bash total.sh)" = "$sum" ] && [ "$(cat report.txt)" = "$sum" ] && reward=1
echo $reward >/logs/verifier/reward.txt
