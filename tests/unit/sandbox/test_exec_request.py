"""What a command may be made of."""

import pytest

from sandbox_server.errors import MalformedRequest
from sandbox_server.sandbox.bash.exec_request import ExecRequest


@pytest.mark.parametrize(
    ("argv", "env", "why"),
    [
        (["true", "x" * (3 << 20)], {}, "longer than 2 MB"),
        (["true"], {"A": "\u00e9" * (2 << 20)}, "longer than 2 MB"),
        (["true", "a\0b"], {}, "NUL"),
        (["true", "\ud800"], {}, "surrogate"),
        ([], {}, "empty"),
    ],
)
def test_what_no_system_can_start(argv: list[str], env: dict[str, str], why: str) -> None:
    """Ten megabytes of argument kept a client waiting for 40 s, to be told that the sandbox is at its limit."""
    with pytest.raises(MalformedRequest, match=why):
        ExecRequest(argv, env=env).words("0", "/")
