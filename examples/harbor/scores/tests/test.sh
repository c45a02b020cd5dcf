#!/bin/bash
python3 -m pytest -q -p no:cacheprovider --junitxml=/tmp/result.xml "$(dirname "$0")/test_words.py"
python3 "$(dirname "$0")/score.py" /tmp/result.xml "$LEAST" >/logs/verifier/reward.json
