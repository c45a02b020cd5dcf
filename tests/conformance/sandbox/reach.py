"""Runs inside a sandbox as root: prints a JSON object, attempted access -> `open` or the error's name.

Needs nothing but Python's own library. Arguments: `host:port` of what must not be reached.
"""

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
found = {}

ARM = os.uname().machine == "aarch64"
SYSCALLS = {  # name -> numbers on x86-64 and on arm64, arguments
    "keyring: add_key": ((248, 217), (b"user", b"a", b"b", 1, -3)),
    "keyring: keyctl": ((250, 219), (0, -3, 0)),
    "user namespace": ((272, 97), (0x10000000,)),
    "mount namespace": ((272, 97), (0x20000,)),
    "network namespace": ((272, 97), (0x40000000,)),
    "mount": ((165, 40), (b"none", b"/mnt", b"tmpfs", 0, None)),
    "umount of /proc": ((166, 39), (b"/proc", 2)),
    "pivot_root": ((155, 41), (b"/tmp", b"/tmp")),
    "bpf": ((321, 280), (0, None, 0)),
    "perf_event_open": ((298, 241), (None, 0, -1, -1, 0)),
    "kexec_load": ((246, 104), (0, 0, None, 0)),
    "init_module": ((175, 105), (None, 0, b"")),
    "reboot": ((169, 142), (0xFEE1DEAD, 672274793, 0)),  # CAD off: harmless where it works
    "swapon": ((167, 224), (b"/none", 0)),
    "clock_settime": ((227, 112), (0, (ctypes.c_long * 2)(-1, -1))),
    "open_by_handle_at": ((304, 265), (-1, None, 0)),
    "kernel log": ((103, 116), (3, ctypes.create_string_buffer(64), 64)),
    "setns": ((308, 268), (-1, 0)),
    "quotactl": ((179, 60), (0, None, 0, None)),
    "acct": ((163, 89), (None,)),
    "userfaultfd": ((323, 282), (0,)),
    "sethostname": ((170, 161), (b"taken", 5)),
    "io_uring": ((425, 425), (0, None)),
    "io_uring_enter": ((426, 426), (-1, 0, 0, 0, None, 0)),
    "io_uring_register": ((427, 427), (-1, 0, None, 0)),
    "keyring: request_key": ((249, 218), (b"user", b"a", None, -3)),
    "time namespace": ((272, 97), (0x80,)),
    "open_tree": ((428, 428), (-1, b"", 0)),
    "move_mount": ((429, 429), (-1, b"", -1, b"", 0)),
    "fsopen": ((430, 430), (b"tmpfs", 0)),
    "fsmount": ((432, 432), (-1, 0, 0)),
    "mount_setattr": ((442, 442), (-1, b"", 0, None, 0)),
    "pidfd_getfd": ((438, 438), (-1, 0, 0)),
    "process_madvise": ((440, 440), (-1, None, 0, 0, 0)),
    "kcmp": ((312, 272), (1, 1, 0, 0, 0)),
    "memfd_secret": ((447, 447), (0,)),
    "name_to_handle_at": ((303, 264), (-100, b"/", None, None, 0)),
    "fanotify_init": ((300, 262), (0, 0)),
    "modify_ldt": ((154, -1), (0, None, 0)),
    "clone3": ((435, 435), (None, 0)),  # no arguments: it makes nothing where it is open
}


def tried(name, action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        found[name] = errno.errorcode.get(error.errno, str(error.errno)) if error.errno else type(error).__name__
    else:
        found[name] = "open"


def syscall(numbers, arguments):
    """Return where the kernel looked at the call at all: a complaint about its arguments is not a refusal."""
    if libc.syscall(numbers[ARM], *arguments) < 0 and ctypes.get_errno() in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), "")


def written(path, text="1"):
    with open(path, "w") as stream:
        stream.write(text)


def first_byte(path):
    with open(path, "rb") as stream:
        stream.read(1)


def locked(stream, command):
    lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 42, 1, 0)
    if libc.syscall((72, 25)[ARM], stream.fileno(), ctypes.c_long(command), lock) < 0:
        raise OSError(ctypes.get_errno(), "")


def connected(place):
    host, _, port = place.rpartition(":")
    socket.create_connection((host, int(port)), 2).close()


for name, (numbers, arguments) in SYSCALLS.items():
    tried(name, syscall, numbers, arguments)
for path in (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/vm/drop_caches",
    "/proc/sysrq-trigger",
    "/sys/kernel/uevent_helper",
):
    tried(f"write {path}", written, path)
for path in ("/proc/kcore", "/proc/1/mem", "/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda"):
    tried(f"read {path}", first_byte, path)
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"):
    tried(f"socket {path}", socket.socket(socket.AF_UNIX).connect, path)
for kind, device in (("block", stat.S_IFBLK), ("character", stat.S_IFCHR)):
    tried(f"mknod {kind}", os.mknod, f"/tmp/{kind}", device | 0o600, os.makedev(1, 1))
tried("raw socket", socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
tried("packet socket", socket.socket, socket.AF_PACKET, socket.SOCK_RAW)
with open("/etc/hostname", "rb") as stream:
    fcntl.lockf(stream, fcntl.LOCK_SH)  # a lock of one's own works
    for command in (37, 37 | 1 << 32):  # F_OFD_SETLK; the kernel reads 32 bits of it
        tried(f"lock of an open file, {command:x}", locked, stream, command)
tried("vsock", socket.socket, 40, socket.SOCK_STREAM)
tried("kernel's ciphers", socket.socket, socket.AF_ALG, socket.SOCK_SEQPACKET)
for place in sys.argv[1:]:
    tried(f"connect {place}", connected, place)

with open("/proc/self/status") as stream:
    status = dict(line.split(":\t", 1) for line in stream if ":\t" in line)
found["kernel"] = os.uname().release
found["NoNewPrivs"] = status.get("NoNewPrivs", "").strip()
found["Seccomp"] = status.get("Seccomp", "").strip()
found["capabilities"] = status.get("CapBnd", "").strip()
found["devices"] = sorted(name for name in os.listdir("/dev") if stat.S_ISBLK(os.lstat(f"/dev/{name}").st_mode))
found["open files"] = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
found["core"] = resource.getrlimit(resource.RLIMIT_CORE)[1]


def too_long():
    with open("/tmp/long", "wb") as stream:
        stream.truncate(65 << 20)


def too_many():
    children = []
    try:
        for _ in range(200):
            child = os.fork()
            if not child:
                signal.pause()
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
tried("a file of 65 MB", too_long)
tried("200 processes", too_many)
print(json.dumps(found))
