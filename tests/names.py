"""Names, an authority and the shipped balancer, made on the spot: a domain whose every name is one loopback address."""

import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

SHIPPED = Path(__file__).resolve().parent.parent / "deploy" / "haproxy"


@contextmanager
def names(address: str, domain: str, *, port: int = 53, answer: Callable[[str], str] | None = None) -> Iterator[int]:
    """A name server on `address`: all names of `domain` are `address`, there are no others. Yields its port.

    `answer`: a name's address. Port 53 needs root; 0 takes a free one.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.bind((address, port))
        threading.Thread(target=_serve, args=(wire, domain, answer or (lambda name: address)), daemon=True).start()
        yield int(wire.getsockname()[1])
        with suppress(OSError):  # it wakes the reader, although there is no connection
            wire.shutdown(socket.SHUT_RDWR)


def _serve(wire: socket.socket, domain: str, address_of: Callable[[str], str]) -> None:
    while True:
        try:
            query, asker = wire.recvfrom(512)
        except OSError:
            return
        if not query:
            return
        at, labels = 12, []
        while size := query[at]:
            labels.append(query[at + 1 : at + 1 + size].decode().lower())
            at += 1 + size
        question, (kind,) = query[12 : at + 5], struct.unpack(">H", query[at + 1 : at + 3])
        name = ".".join(labels)
        known = name.endswith(domain)
        answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(address_of(name))
        found = known and kind == 1
        flags = 0x8180 if known else 0x8183  # no such name
        head = query[:2] + struct.pack(">HHHHH", flags, 1, int(found), 0, 0)
        wire.sendto(head + question + (answer if found else b""), asker)


def certificate(folder: Path, domain: str, also: Sequence[str] = ()) -> tuple[Path, str]:
    """A new authority's certificate, and certificate and key for `*.domain` that it has signed, in one text.

    `also`: further names and addresses, as OpenSSL writes them, e.g. `IP:10.0.0.1`.
    """

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    openssl("req", *key, "-keyout", "own.key", "-out", "own.csr", "-subj", f"/CN={domain}")
    listed = ",".join([f"DNS:*.{domain}", *also])
    (folder / "own.ext").write_text(f"subjectAltName={listed}\nextendedKeyUsage=serverAuth\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "own.ext")
    openssl("x509", "-req", "-in", "own.csr", *signed, "-out", "own.pem")
    return folder / "ca.pem", (folder / "own.pem").read_text() + (folder / "own.key").read_text()


def balancer(address: str, ports: Mapping[str, int]) -> tuple[str, str]:
    """haproxy.cfg and boxes.cfg as shipped, on `address`, with `ports` for 5000 and 8404, before one server.

    The server is that of SANDBOX_SERVERS, `host:port`: one without DNS in place of a hundred by name.
    """
    text = (SHIPPED / "haproxy.cfg").read_text().replace(' 100 "${SANDBOX_SERVERS}"', ' 1 "${SANDBOX_SERVERS}"')
    for name, port in ports.items():
        text = text.replace(f"bind :{name}\n", f"bind {address}:{port}\n")
    return text, (SHIPPED / "boxes.cfg").read_text().replace("bind :443", f"bind {address}:443")
