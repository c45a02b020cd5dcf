#!/bin/sh
# gVisor as an engine's runtime `runsc`, for tests only: without a network and without limits of its own, so that it also
# runs where it may not make control groups. The program is Debian's package runsc.
exec runsc --network=none --ignore-cgroups "$@"
