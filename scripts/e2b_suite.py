"""Runs E2B's own test suites, whole, against a server of this tree: `make e2b-suite SUITE=<checkout of e2b-dev/E2B>`.

Nothing of the checkout is changed; its packages are copied to .cache/e2b-suite, with their dependencies from PyPI and
npm. Clients find the server by names and TLS alone, through deploy/haproxy. `--stand-ins` puts the addresses of the
Internet that the suites ask on this host's loopback meanwhile, so that those tests run too.

What may fail is what docs/boxes.md lists. Fails for any other failure, after having run it once more by itself, and for
an exception that no longer is one. Needs root, an engine, and Debian's haproxy, nodejs, npm and chromium.
"""

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from sandbox_server.cli.local_server import local_server
from scripts.e2b_packages import ADDRESS, ROOT, SOCKET, WORK, JavaScript, Python
from tests.live.serving import free_port, until
from tests.names import balancer, certificate, names

DOMAIN = "boxes.test"
BASE, ALSO = "sandbox-e2b-suite/base:latest", ("ubuntu:22.04", "e2bdev/base:latest")
"""The image of the template `base`, and what else the suites build from: here the same image."""
STAND_INS = {"1.1.1.1": 301, "8.8.8.8": 302, "192.0.0.204": 204}
"""Address -> the status that its HTTPS answers with."""
NAMED = {"connectivitycheck.gstatic.com": "192.0.0.204"}
RUN_S = 3600.0
DOCKERFILE = """
FROM sandbox-samples/base:latest
COPY certificates/ /usr/local/share/ca-certificates/
RUN apt-get update && apt-get install -y --no-install-recommends curl sudo nodejs && rm -rf /var/lib/apt/lists/*
RUN useradd -m -s /bin/bash user && echo 'user ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/user
COPY own/ca.pem /usr/local/share/ca-certificates/suite.crt
RUN update-ca-certificates
COPY own/curlrc /home/user/.curlrc
"""


@dataclass
class Outcome:
    """How one run of tests ended: names `file::test`."""

    passed: list[str] = field(default_factory=list)
    """Some names are those of several tests."""
    failed: dict[str, str] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)


def say(text: str) -> None:
    """Print a line now."""
    print(text, flush=True)


def read(report: Path) -> Outcome:
    """A JUnit report; a report that is missing is a run that failed."""
    outcome = Outcome()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        where, test = case.get("classname", ""), case.get("name", "")
        name = f"{where}::{test}"
        wrong = next((one for kind in ("failure", "error") if (one := case.find(kind)) is not None), None)
        if wrong is not None:
            text = f"{wrong.get('message', '')}\n{wrong.text or ''}".strip()
            outcome.failed[name] = text.splitlines()[0][:300] if text else ""
        elif case.find("skipped") is not None:
            outcome.skipped.add(name)
        else:
            outcome.passed.append(name)
    # a test whose end failed too
    outcome.passed = [name for name in outcome.passed if name not in outcome.failed]
    return outcome


def exceptions(suite: str) -> dict[str, str]:
    """Pattern of a test's name -> why it fails, as docs/boxes.md lists it for that suite."""
    text = (ROOT / "docs" / "boxes.md").read_text().partition("## E2B's own suites")[2]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    return {
        pattern: why for suites, tests, why in rows if suite in suites for pattern in re.findall(r"`([^`]+)`", tests)
    }


def matching(name: str, patterns: Mapping[str, str]) -> str:
    """The first pattern that the test's name matches, else nothing."""
    return next((pattern for pattern in patterns if fnmatch.fnmatch(name, f"*{pattern}*")), "")


def build_image(authority: Path, folder: Path) -> None:
    """The image of the template, with the authority's certificate."""
    subprocess.run([str(ROOT / "scripts" / "base-image.sh")], check=True)
    subprocess.run([str(ROOT / "scripts" / "certificates.sh"), str(folder)], check=True)
    (folder / "own").mkdir()
    shutil.copy(authority, folder / "own")
    hosts = "".join(f'resolve = "{name}:443:{address}"\n' for name, address in NAMED.items())
    (folder / "own" / "curlrc").write_text(hosts)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    subprocess.run(["docker", "build", "-q", "-t", BASE, str(folder)], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def tags() -> Iterator[None]:
    """The other names of the image, where nobody else has them."""
    mine = [
        name for name in ALSO if subprocess.run(["docker", "image", "inspect", name], capture_output=True).returncode
    ]
    try:
        for name in mine:
            subprocess.run(["docker", "tag", BASE, name], check=True)
        yield
    finally:
        for name in mine:
            subprocess.run(["docker", "rmi", name], check=False, capture_output=True)


@contextmanager
def addresses() -> Iterator[None]:
    """The stand-ins' addresses on the loopback interface."""
    try:
        for address in STAND_INS:
            subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
        yield
    finally:
        for address in STAND_INS:
            subprocess.run(["ip", "address", "del", f"{address}/32", "dev", "lo"], check=False)


@contextmanager
def proxy(folder: Path, server: str, stand_ins: bool) -> Iterator[None]:
    """The shipped balancer; with the stand-ins behind it."""
    ports = {"5000": free_port(), "8404": free_port()}
    texts = dict(zip(("haproxy.cfg", "boxes.cfg"), balancer(ADDRESS, ports), strict=True))
    pem = folder / "own.both.pem"
    own = f"bind {ADDRESS}:443 ssl crt /etc/haproxy/certificates/boxes.pem"
    also = f"bind {ADDRESS}:443,unix@{SOCKET} ssl crt {pem}"
    texts["boxes.cfg"] = texts["boxes.cfg"].replace(own, also)
    if stand_ins:
        texts["stand-ins.cfg"] = "".join(
            f"frontend at-{address}\n    bind {address}:443 ssl crt {pem}\n    http-request "
            + (f"redirect code {status} location /there\n" if status != 204 else "return status 204\n")
            for address, status in STAND_INS.items()
        )
    words = ["haproxy", "-W", "-db"]
    for name, text in texts.items():
        (folder / name).write_text(text)
        words += ["-f", str(folder / name)]
    environment = os.environ | {
        "SANDBOX_SERVERS": server.removeprefix("http://"),
        "SANDBOX_BOX_DOMAIN": DOMAIN,
        "SANDBOX_BALANCER_RETRIES": "30",
        "SANDBOX_CHECK_KEY": "none",
    }
    with (
        (WORK / "haproxy.log").open("wb") as log,
        subprocess.Popen(words, env=environment, stdout=log, stderr=log) as run,
    ):
        try:

            def serves() -> bool:
                if run.poll() is not None:
                    raise SystemExit(f"haproxy did not start: {(WORK / 'haproxy.log').read_text()[-1000:]}")
                try:
                    return httpx.get(f"http://{ADDRESS}:{ports['8404']}/healthz", trust_env=False).is_success
                except httpx.TransportError:
                    return False

            until(serves, what="a server in rotation")
            yield
        finally:
            run.terminate()


def environment(folder: Path) -> dict[str, str]:
    """What a client needs: a domain, a key, the authority."""
    system = Path("/etc/ssl/certs/ca-certificates.crt")
    bundle = folder / "bundle.pem"
    bundle.write_text((folder / "ca.pem").read_text() + (system.read_text() if system.exists() else ""))
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith(("SANDBOX_", "E2B_"))
    }
    return clean | {
        "E2B_DOMAIN": DOMAIN,
        "E2B_API_KEY": "e2b_" + "0" * 40,
        "SSL_CERT_FILE": str(bundle),
        "NODE_EXTRA_CA_CERTS": str(folder / "ca.pem"),
        "no_proxy": "*",
    }


def run(suite: Python | JavaScript, folder: Path, only: Sequence[str], workers: int) -> Outcome:
    """Run the suite, or some tests of it, where only the names of DOMAIN exist."""
    report = folder / f"{suite.name}-{len(only)}.xml"
    command, at = suite.command(report, only, workers)
    inside = [
        "unshare",
        "-m",
        "sh",
        "-c",
        'mount --bind "$0" /etc/resolv.conf && exec "$@"',
        str(folder / "resolv.conf"),
    ]
    log = WORK / f"{suite.name.lower()}{'-again' if only else ''}.log"
    with log.open("wb") as stream:
        subprocess.run(
            [*inside, *command],
            cwd=at,
            env=environment(folder),
            stdout=stream,
            stderr=stream,
            timeout=RUN_S,
            check=False,
        )
    if not report.exists():
        raise SystemExit(f"{suite.name}: no report; see {log}")
    shutil.copy(report, WORK / f"{suite.name.lower()}{'-again' if only else ''}.xml")
    return read(report)


def judge(suite: Python | JavaScript, first: Outcome, again: Outcome, *, whole: bool) -> bool:
    """Say what failed and why; whether all is as documented. `whole`: no exception may have passed."""
    known = exceptions(suite.name)
    steady = {name: text for name, text in first.failed.items() if name not in again.passed}
    unforeseen = {name: text for name, text in steady.items() if not matching(name, known)}
    gone = {matching(name, known) for name in (*first.passed, *again.passed)} - {
        matching(name, known) for name in steady
    }
    stale = sorted(pattern for pattern in gone if whole and pattern)
    say(
        f"{suite.name} {suite.version}: {len(first.passed)} passed, {len(first.failed)} failed, "
        f"{len(first.skipped)} skipped; of those that failed {len(first.failed) - len(steady)} passed by themselves, "
        f"{len(steady) - len(unforeseen)} are exceptions, {len(unforeseen)} unforeseen"
    )
    for name in sorted(set(first.failed) - set(steady)):
        say(f"  unsteady    {name}: {first.failed[name]}")
    for name in sorted(set(steady) - set(unforeseen)):
        say(f"  exception   {name}: {known[matching(name, known)]}")
    for name, text in sorted(unforeseen.items()):
        say(f"  unforeseen  {name}: {text}")
    for pattern in stale:
        say(f"  passes now  {pattern}: docs/boxes.md lists it")
    return not unforeseen and not stale and bool(first.passed)


def main() -> None:
    """Run both suites; exit 1 if anything is not as documented."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of e2b-dev/E2B")
    parser.add_argument("--suite", choices=("python", "javascript"), help="one of the two")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEST", help="these tests, as the output names them")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--stand-ins", action="store_true", help="put addresses of the Internet on this host meanwhile")
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    suites = [Python(given.checkout), JavaScript(given.checkout)]
    suites = [one for one in suites if given.suite in (None, one.name.lower())]
    for suite in suites:
        suite.prepare()
    good = True
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="e2b-suite-")))
        authority, pem = certificate(
            folder, DOMAIN, [*(f"IP:{one}" for one in STAND_INS), *(f"DNS:{one}" for one in NAMED)]
        )
        (folder / "own.both.pem").write_text(pem)
        (folder / "resolv.conf").write_text(f"nameserver {ADDRESS}\n")
        (image := folder / "image").mkdir()
        build_image(authority, image)
        stack.enter_context(tags())
        if given.stand_ins:
            stack.enter_context(addresses())
        server = stack.enter_context(
            local_server(
                ROOT / "examples" / "instances.jsonl",
                {
                    "SANDBOX_BOX_TEMPLATES": json.dumps({"base": BASE}),
                    "SANDBOX_BOX_DOMAIN": DOMAIN,
                    "SANDBOX_BOX_USER": "user",
                    "SANDBOX_BOX_ORIGINS": "*",  # the suite has a test in a browser
                    "SANDBOX_BOX_SUDO_IMAGES": BASE,
                    "SANDBOX_MAX_SESSIONS": "40",
                    "SANDBOX_TEMPLATE_BUILDS": "2",
                    "SANDBOX_POOL_SIZE": "0",
                    "SANDBOX_PULL": "never",
                    "SANDBOX_REAPER_PERIOD_S": "1",
                },
            )
        )
        stack.enter_context(names(ADDRESS, DOMAIN))
        stack.enter_context(proxy(folder, server.url, given.stand_ins))
        for suite in suites:
            began = time.monotonic()
            first = run(suite, folder, given.only, given.workers)
            again = run(suite, folder, sorted(first.failed), 1) if first.failed else Outcome()
            say(f"{suite.name}: {time.monotonic() - began:.0f} s")
            good = judge(suite, first, again, whole=not given.only) and good
        shutil.copy(server.log, WORK / "server.log")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
