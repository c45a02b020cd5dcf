#!/bin/sh
# Writes build/sbom.json, every locked package of the server with its hashes, and build/licences.csv, the licence of
# each. Fails if a package names none, or one with further obligations for those who redistribute the server.
set -eu
cd "$(dirname "$0")/.."
tools=.cache/supply/tools/bin

mkdir -p build
"$tools/cyclonedx-py" requirements requirements/server.txt --output-reproducible -o build/sbom.json
names=$(sed -n 's/^\([A-Za-z0-9._-]*\)==.*/\1/p' requirements/server.txt)
# shellcheck disable=SC2086 -- package names contain no spaces
"$tools/pip-licenses" --python .venv/bin/python --packages $names --format=csv --from=mixed \
    --output-file build/licences.csv
if grep -Ei '"(UNKNOWN|.*(AGPL|Affero|GPL-[23]|GPLv[23]|GNU General).*)"' build/licences.csv | grep -vi lesser; then
    echo "look at these licences" >&2
    exit 1
fi
echo "build/sbom.json, build/licences.csv: $(grep -c . build/licences.csv) lines" >&2
