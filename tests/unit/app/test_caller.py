"""One session has one spelling of its sid."""

import pytest

from sandbox_server.protocols._caller import NO_SESSION, canonical_sid


@pytest.mark.parametrize("sid", ["1", "9223372036854775807", 7])
def test_sids(sid: int | str) -> None:
    """The sid of a start is the one by which it is found."""
    assert canonical_sid(sid) == str(sid)


@pytest.mark.parametrize(
    "sid", [None, "", "0", "007", "+7", "7 ", "7\n", "\u0667", "9223372036854775808", -7, 0, 2**63, "1" * 5000]
)
def test_other_spellings_name_no_session(sid: int | str | None) -> None:
    """Leases and journals are kept by the text: two spellings could act on one container at once."""
    assert canonical_sid(sid) == NO_SESSION
