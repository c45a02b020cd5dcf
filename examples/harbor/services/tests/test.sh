#!/bin/bash
# The tests ask a service of their own: what the agent wrote into its one is not there.
price() { python3 -c "import sys, urllib.request as r; print(float(r.urlopen(sys.argv[1]).read()))" "$RATES_URL/$1"; }
wanted=$(python3 -c "print(f'{12 * $(price USD) + 3.5 * $(price GBP):.2f}')")
if [ "$wanted" = 15.00 ] && [ "$(cat /app/total.txt)" = "$wanted" ]; then
    echo 1 >/logs/verifier/reward.txt
else
    echo 0 >/logs/verifier/reward.txt
fi
