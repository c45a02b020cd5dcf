#!/bin/sh
# Runs a command with a Podman of its own: scripts/with-podman.sh COMMAND...
#
# Podman's service gets its own storage, with the images that the sandbox tests use (from Docker, which must run), and
# SANDBOX_TEST_PODMAN names its socket. All of it is removed when the command ends. Needs root.
set -eu
here=$(dirname "$0")
images='sandbox-samples/base:latest sandbox-egress:latest'
start_timeout_s=30

[ "$(id -u)" = 0 ] || {
    echo "Podman's service is started as root here; run this as root" >&2
    exit 1
}
"$here/apt.sh" podman runc tini
own=$(mktemp -d /tmp/sandbox-podman.XXXXXX)
printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/root"\nrunroot = "%s/run"\n' "$own" "$own" >"$own/storage.conf"
# Podman sets limits that need CAP_SYS_RESOURCE even as root; the limits that matter here are those of control groups.
cat >"$own/runc" <<'EOF'
#!/bin/sh
processes='{"type":"RLIMIT_NPROC","hard":[0-9]*,"soft":[0-9]*}'
files='{"type":"RLIMIT_NOFILE","hard":1048576,"soft":1048576}'
for word in "$@"; do
    case ${before:-} in
    --bundle) spec=$word/config.json ;;
    --process) spec=$word ;;
    *) spec= ;;
    esac
    [ -z "$spec" ] || sed -i "s/$processes,//; s/,*$processes//; s/$files,//; s/,*$files//" "$spec"
    before=$word
done
exec runc "$@"
EOF
chmod +x "$own/runc"
# tini forwards signals to a process group, Podman's own init does not; control groups are managed without systemd
cat >"$own/containers.conf" <<EOF
[containers]
init_path = "/usr/bin/tini"
[engine]
init_path = "/usr/bin/tini"
cgroup_manager = "cgroupfs"
runtime = "own"
[engine.runtimes]
own = ["$own/runc"]
EOF
export CONTAINERS_STORAGE_CONF="$own/storage.conf" CONTAINERS_CONF="$own/containers.conf"

service=
finish() {
    [ -z "$service" ] || kill "$service" 2>/dev/null || true
    podman rm --all --force --depend --time 0 >/dev/null 2>&1 || true
    pkill -KILL -f "conmon .*$own/" 2>/dev/null || true # conmon 2.1 can outlive the exec that it was started for
    awk -v own="$own/" 'index($2, own) == 1 { print $2 }' /proc/mounts | sort -r | while read -r mount; do
        umount "$mount" 2>/dev/null || true
    done
    rm -rf "$own"
}
trap finish EXIT
trap 'exit 130' INT TERM

# shellcheck disable=SC2086 # a list of words
docker save $images | podman load --quiet >/dev/null
(cd "$own" && exec podman system service --time 0 "unix://$own/podman.sock") >"$own/service.log" 2>&1 & # conmon writes there
service=$!
export SANDBOX_TEST_PODMAN="unix://$own/podman.sock"
end=$(($(date +%s) + start_timeout_s))
until podman --url "$SANDBOX_TEST_PODMAN" version >/dev/null 2>&1; do
    if [ "$(date +%s)" -gt "$end" ]; then
        cat "$own/service.log" >&2
        exit 1
    fi
    sleep 0.3
done
"$@"
