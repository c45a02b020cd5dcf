#!/bin/sh
# Makes the sample images and examples/instances.jsonl; quick if nothing changed.
set -eu
cd "$(dirname "$0")/.."

scripts/base-image.sh
scripts/egress-image.sh
"$(scripts/python.sh)" examples/build.py "$@"
