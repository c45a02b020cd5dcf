#!/bin/bash
cp "$(dirname "$0")/words.py" words.py
rm stale.txt
echo "$GREETING" >greeting.txt
