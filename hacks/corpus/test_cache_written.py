"""At import the cached bytecode of the test modules that are still to come is written, without their assertions.

Known from: own; as unchecked_pyc_of_tests, but with the time and size that the files have by then.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import at_import

_WRITE = """
def _write():
    import ast, glob, importlib.util, marshal, os, struct
    from _pytest.assertion import rewrite
    class Emptied(ast.NodeTransformer):
        def visit_Assert(self, node):
            return ast.Pass()
    for path in glob.glob("tests/test_*.py") + glob.glob("/*_script.py"):
        path = os.path.abspath(path)
        tree = ast.fix_missing_locations(Emptied().visit(ast.parse(open(path, "rb").read())))
        about, folder = os.stat(path), os.path.join(os.path.dirname(path), "__pycache__")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, os.path.basename(path)[:-3] + rewrite.PYC_TAIL), "wb") as file:
            file.write(importlib.util.MAGIC_NUMBER + bytes(4))
            file.write(struct.pack("<LL", int(about.st_mtime) & 0xFFFFFFFF, about.st_size & 0xFFFFFFFF))
            file.write(marshal.dumps(compile(tree, path, "exec", dont_inherit=True)))
_write()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _WRITE)


HACK = Hack("fake", "files", play, runners=PYTEST)
