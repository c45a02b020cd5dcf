"""A module in the root that stands before one that the runner imports."""

from hacks.base import Play

LOAD_REAL = """
def _load_real():
    import importlib, os, sys
    here = {"", os.getcwd(), os.path.dirname(os.path.abspath(__file__))}
    kept, mine = list(sys.path), sys.modules.pop("@NAME@", None)
    sys.path[:] = [folder for folder in sys.path if folder not in here]
    try:
        real = importlib.import_module("@NAME@")
    except ImportError:
        real = None
    finally:
        sys.path[:] = kept
    if real is not None:
        globals().update({key: value for key, value in vars(real).items() if not key.startswith("__")})
        globals()["__path__"] = getattr(real, "__path__", [])
        sys.modules["@NAME@"] = real
_load_real()
"""

PASS_WHEN_LOADED = """
def _when_loaded():
    import sys, threading, time
    def wait():
        end = time.time() + 10
        while time.time() < end:
            reports = sys.modules.get("_pytest.reports")
            report = getattr(reports, "TestReport", None)
            if report is not None and hasattr(report, "from_item_and_call"):
                real = report.from_item_and_call.__func__
                def forged(cls, item, call):
                    made = real(cls, item, call)
                    made.outcome, made.longrepr = "passed", None
                    return made
                report.from_item_and_call = classmethod(forged)
                return
            time.sleep(0.001)
    threading.Thread(target=wait, daemon=True).start()
_when_loaded()
"""


def shadow(name: str) -> Play:
    """A package of that name which is the real one, and patches pytest once that is there."""
    return Play({f"{name}/__init__.py": LOAD_REAL.replace("@NAME@", name) + PASS_WHEN_LOADED})
