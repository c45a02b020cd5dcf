#!/bin/sh
# Installs the named Debian packages that are missing. Needs root and apt-get, and says so if they are not available.
set -eu

missing=
for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "missing:$missing (Debian's names; this system has no apt-get: install them its own way)" >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "missing:$missing; as root: apt-get install$missing" >&2
    exit 1
fi

# apt-get waits if another apt-get holds the lock of the packages, but not if it holds the lock of the lists
mkdir -p /run/lock
exec 9>/run/lock/sandbox-apt
flock -w 900 9
echo "installing:$missing" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
install() { # without the lock, which a daemon that a package starts would keep
    # shellcheck disable=SC2086 # a list of words
    apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends $missing >"$log" 2>&1 </dev/null 9>&-
}
# A fresh machine has no package lists, an old one has stale ones: one update fixes both.
install || { apt-get update >/dev/null 2>&1 </dev/null 9>&- && install; } || {
    tail -n 20 "$log" >&2
    echo "apt-get could not install:$missing" >&2
    exit 1
}
