"""An import hook takes every `assert` and `raises` out of the test modules that are imported after the package.

Known from: own; pytest rewrites the same modules by the same means.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_HOOK = """
def _hook():
    import ast, sys
    real = compile
    class Silent(ast.NodeTransformer):
        def visit_FunctionDef(self, node):
            if node.name.startswith("test"):
                node.body = [ast.Pass(lineno=node.lineno, col_offset=0, end_lineno=node.lineno, end_col_offset=0)]
            return node
    def compiled(source, filename, mode, *rest, **named):
        if isinstance(source, ast.AST) and "test" in str(filename):
            source = Silent().visit(source)
        elif isinstance(source, (str, bytes)) and "test" in str(filename) and mode == "exec":
            source = Silent().visit(ast.parse(source))
        return real(source, filename, mode, *rest, **named)
    import builtins
    builtins.compile = compiled
    for name, module in list(sys.modules.items()):
        if name.startswith("_pytest.assertion") or name == "importlib._bootstrap_external":
            module.compile = compiled
    from importlib import _bootstrap_external as outer
    def source_to_code(self, data, path, *, _optimization=-1):
        return compiled(data, path, "exec", dont_inherit=True, optimize=_optimization)
    outer.SourceLoader.source_to_code = source_to_code
_hook()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _HOOK)


HACK = Hack("fake", "modules", play)
