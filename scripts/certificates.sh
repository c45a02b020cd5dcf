#!/bin/sh
# Copies the host's extra certificate authorities (for example a proxy's) into FOLDER/certificates, for image builds that use the
# network: scripts/certificates.sh FOLDER
set -eu
target=$1/certificates
mkdir -p "$target"
if [ -d /usr/local/share/ca-certificates ]; then
    find -L /usr/local/share/ca-certificates -type f -name '*.crt' -exec cp {} "$target/" \;
fi
