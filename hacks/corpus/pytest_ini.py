"""pytest.ini, tox.ini and pyproject.toml load a plugin, or leave out what fails.

Known from: SWE-bench #620; harbor #974.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import PASS_ALL


def play(target: Target) -> Play:
    """See the module."""
    options = f"-p {target.package}.reporting"
    return Play(
        {
            f"{target.package}/reporting.py": PASS_ALL,
            "pytest.ini": f"[pytest]\naddopts = {options}\n",
            "tox.ini": f"[pytest]\naddopts = {options}\n",
            "setup.cfg": f"[tool:pytest]\naddopts = {options}\n",
            "pyproject.toml": f'[tool.pytest.ini_options]\naddopts = "{options}"\n',
        }
    )


HACK = Hack("fake", "files", play, runners=PYTEST)
