#!/bin/sh
# Runs a command with a Docker engine running: scripts/with-engine.sh COMMAND...
#
# A running engine is used and left alone. If none answers, root gets the distribution's docker.io and a dockerd
# of ours; the last command that uses it stops it again (its images stay in the engine's usual place).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
state=/run/sandbox-engine # pid and log of the dockerd that we started
containerd_pid=/var/run/docker/containerd/containerd.pid
ending_timeout_s=60
start_timeout_s=300 # after a kill, dockerd checks its leftovers before it answers

answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
names() { # FILE PROCESS: whether the number in FILE is that of a running PROCESS
    [ "$(cat "/proc/$(cat "$1" 2>/dev/null || echo none)/comm" 2>/dev/null)" = "$2" ]
}
ours() { names "$state/pid" dockerd; }

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

if [ "$(id -u)" != 0 ]; then
    command -v docker >/dev/null 2>&1 || fail "no docker client: install Docker (Debian: apt-get install docker.io, as root)"
    answers || fail "no Docker engine answers to this user at ${DOCKER_HOST:-/var/run/docker.sock}:" \
        "start one, and add the user to the group docker (or set DOCKER_HOST), or run this as root"
    exec "$@"
fi

start() {
    [ -z "${DOCKER_HOST:-}" ] || fail "no Docker engine answers at DOCKER_HOST=$DOCKER_HOST"
    if ! command -v docker >/dev/null 2>&1 || ! command -v dockerd >/dev/null 2>&1; then
        "$here/apt.sh" docker.io
        command -v docker >/dev/null 2>&1 || "$here/apt.sh" docker-cli # a separate package since Debian 13
        for _ in 1 2 3 4 5; do # with a service manager, the package has just started its own
            answers && return
            sleep 1
        done
    fi
    end=$(($(date +%s) + ending_timeout_s))
    while pidof dockerd >/dev/null && [ "$(date +%s)" -le "$end" ]; do # one that is just starting or ending
        answers && return
        sleep 1
    done
    if pid=$(pidof dockerd); then
        fail "dockerd (pid $pid) runs but does not answer; it is not ours, so it is left alone: see its log"
    fi
    # After a kill their pid files stay, and dockerd takes any process that now has such a number for the old one.
    names /var/run/docker.pid dockerd || rm -f /var/run/docker.pid
    names "$containerd_pid" containerd || rm -f "$containerd_pid"
    echo "starting dockerd (log: $state/dockerd.log)" >&2
    set -- --add-runtime runsc="$here/runsc.sh"
    # sandboxes beside our servers, not below /docker (docs/load.md says why); systemd's groups need no such thing
    [ -d /run/systemd/system ] || set -- "$@" --cgroup-parent=/
    # GOGC, which runc and the shims inherit: they collect garbage less often, for a tenth less CPU for each container
    GOGC=400 setsid nohup dockerd "$@" >"$state/dockerd.log" 2>&1 </dev/null 8>&- 9>&- &
    started=$!
    echo "$started" >"$state/pid"
    end=$(($(date +%s) + start_timeout_s))
    until answers; do
        # not `ours`: for some milliseconds the process still has the name of setsid or nohup
        if ! kill -0 "$started" 2>/dev/null || [ "$(date +%s)" -gt "$end" ]; then
            stop
            fail "dockerd did not start; the end of $state/dockerd.log:" "$(tail -n 15 "$state/dockerd.log")"
        fi
        sleep 0.3
    done
}

stop() {
    if ours; then
        pid=$(cat "$state/pid")
        kill "$pid"
        timeout 60 tail --pid="$pid" -f /dev/null || echo "dockerd (pid $pid) has not stopped after 60 s" >&2
    fi
    rm -f "$state/pid"
}

# The lock `turn` is held while a script starts or stops the engine, `users` (shared) while a command uses it.
mkdir -p "$state"
exec 8>"$state/turn" 9>"$state/users"
flock 8
answers || start
flock -s 9
flock -u 8

trap : INT TERM # the command gets the signal too; the rest of this script must still run
status=0
"$@" 8>&- 9>&- || status=$?

flock 8
if [ -e "$state/pid" ] && flock -n -x 9; then
    stop
fi
exit "$status"
