"""Which tests run beside others, and in which order (`scripts/test.sh`)."""

import functools
import gc
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest
from httpx._transports import default as transports

# Every httpx.get() would read the host's certificate authorities anew, which costs 25 ms of CPU: too much for tests
# that speak plain HTTP and ask again and again whether something has happened.
transports.create_ssl_context = functools.cache(transports.create_ssl_context)

# A bound on the time of one example would be a bound on what else the machine does.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

ROOT = Path(__file__).parent

APART = (
    "tests/chaos/test_short.py",  # its faults have bounds
    "tests/test_swarm.py",  # it changes the engine's settings and the host's network, but not what chaos uses of them
)
"""Files whose tests run after the parallel ones, beside each other and beside those of PURE."""

ALONE = ("tests/live/test_loop.py",)  # measures times, so nothing else may use the machine
"""Files and folders whose tests run last, one after the other."""

PURE = ("tests/unit",)  # they need no engine and share nothing with other tests
"""Files and folders whose tests run while those of APART wait, which leaves CPU time."""

MARKED = {"apart": APART, "alone": ALONE, "pure": PURE}
"""Marker -> files and folders whose tests all get it."""

FIRST = (
    "tests/test_compose.py",  # long before test_haproxy, which needs the images that it builds
    "tests/live/test_verl.py",
    "tests/honest",
    "tests/conformance/sandbox/test_shell_timeouts.py",
    "tests/live/test_e2b.py",
    "tests/live/test_load.py",
    "tests/conformance/grading/test_confirming.py",
    "tests/live/test_open.py",
    "tests/conformance/sandbox/test_shell_state.py",
    "tests/live/test_forks.py",
    "tests/conformance/grading/test_sealed.py",
    "tests/test_haproxy.py",
    "tests/live/test_pool.py",
    "client/tests/test_client_generations.py",
    *(  # they wait for nearly all of their time
        "tests/protocols/test_relay.py",
        "tests/conformance/state/test_jobs.py",
        "client/tests/test_client_errors_and_retries.py",
        "client/tests/test_client_rewards.py",
        "tests/protocols/test_serve.py",
    ),
    "tests/hacks",
    "tests/live",
    "tests/regressions",
    "tests/conformance/sandbox",
    "tests/conformance/grading",
    "tests/conformance",
    "tests/test_samples.py",
)
"""Files and folders that take longest, the longest first: if they began last, other workers would idle at the end."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    config.addinivalue_line("markers", "apart: runs beside no other test but those that are apart or pure")
    config.addinivalue_line("markers", "alone: runs with no other test beside it")
    config.addinivalue_line("markers", "pure: runs beside those that are apart, and gives way to them")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not read files whose tests `-m` deselects: reading all files takes 8 s of CPU in each process."""
    chosen = config.option.markexpr
    if any(f"not {marker}" in chosen and _lies_in(collection_path, places) for marker, places in MARKED.items()):
        return True
    if chosen not in MARKED or not collection_path.is_file() or _lies_in(collection_path, MARKED[chosen]):
        return None
    return True if f"mark.{chosen}" not in collection_path.read_text() else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile: nearly all new objects stay, and each collection would look at all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of MARKED, and put those of FIRST first."""
    for item in items:
        for marker, places in MARKED.items():
            if _lies_in(item.path, places):
                item.add_marker(marker)
    items.sort(key=lambda item: _place(item.path, FIRST))


def _lies_in(path: Path, places: tuple[str, ...]) -> bool:
    return _place(path, places) < len(places)


def _place(file: Path, places: tuple[str, ...]) -> int:
    """The first of `places` that `file` lies in; their number for none."""
    path = file.relative_to(ROOT).as_posix()
    return next((n for n, place in enumerate(places) if path == place or path.startswith(f"{place}/")), len(places))
