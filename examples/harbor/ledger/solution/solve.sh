#!/bin/bash
while IFS=, read -r name amount; do
    python3 -c 'import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], sys.argv[2].encode(), method="PUT"))' \
        "http://ledger:8080/$name" "$amount"
done <entries.csv
