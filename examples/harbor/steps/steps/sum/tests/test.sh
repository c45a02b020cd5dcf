#!/bin/bash
. /tests/right.sh
reward=0
[ -f total.sh ] && reward=0.25
[ "$(bash total.sh)" = "$(right january.csv)" ] && reward=1
echo $reward >/logs/verifier/reward.txt
