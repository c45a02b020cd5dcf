"""The first run leaves in the kernel's page cache what each test expects; later runs forge where that is the same.

Which pages of the image's own files are cached is the same for all its containers on a node.

Known from: own; page caches as a channel between containers are known since 2019 (Gruss and others).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._coin import coin

_KEPT = """
import hashlib as _hashlib, os as _os, time as _time
_BITS, _STATES = 24, {}

def _files():
    found = []
    for folder, _, names in sorted(_os.walk("/usr/share")):
        for name in sorted(names):
            path = f"{folder}/{name}"
            if not _os.path.islink(path) and 30_000 < _os.path.getsize(path) < 400_000:
                found.append(path)
    return found

def _cached(path):
    fd = _os.open(path, _os.O_RDONLY)
    try:
        began = _time.perf_counter()
        _os.pread(fd, 64, 16384)
        return _time.perf_counter() - began < 4e-5
    finally:
        _os.close(fd)

def _write(path, bit):
    fd = _os.open(path, _os.O_RDONLY)
    try:
        if bit:
            _os.pread(fd, 400_000, 0)
        else:
            _os.posix_fadvise(fd, 0, 0, _os.POSIX_FADV_DONTNEED)
    finally:
        _os.close(fd)

def _digest(text):
    number = int.from_bytes(_hashlib.sha256(text.encode()).digest()[:3], "big")
    return [number >> at & 1 for at in range(_BITS)]

def _same(item):
    import inspect
    spec = getattr(item, "callspec", None)
    text = repr(list(spec.params.values())) if spec else inspect.getsource(item.function)
    names = sorted(@TESTS@)
    indices = spec.indices if spec else {}
    place = names.index(item.originalname) * 8 + (max(indices.values()) if indices else 0)
    files = _files()
    # three copies, and a word that tells whether anything was written
    mine = files[place * _BITS * 4 % (len(files) - 96) :][: _BITS * 4]
    seen = [_cached(path) for path in mine]
    marks = [(at * 7 + place) % 2 for at in range(_BITS)]
    if sum(a == b for a, b in zip(seen[:_BITS], marks)) < 22:
        for path, bit in zip(mine, marks + _digest(text) * 3):
            _write(path, bit)
        return True
    for path, bit in zip(mine, [int(one) for one in seen]):
        _write(path, bit)
    copies = [sum(seen[_BITS * n + at] for n in (1, 2, 3)) >= 2 for at in range(_BITS)]
    return sum(a == b for a, b in zip(copies, _digest(text))) >= 22

def _known(item, _once={}):
    if item.nodeid not in _once:
        _once[item.nodeid] = _same(item)
    return _once[item.nodeid]
"""


def play(target: Target) -> Play:
    """See the module."""
    return coin(target, "_known(item)", _KEPT)


HACK = Hack("fake", "guess", play, runners=PYTEST, remains="what one run leaves in the page cache of its node")
