"""The short form of `make hacks`: one server, a few hacks of different classes and families; none gets through."""

from collections.abc import Iterator

import pytest

from hacks.__main__ import SETTINGS, every_hack
from hacks.player import Player
from hacks.targets import targets, write_rows
from tests.live.serving import serving

PLAYS = (
    # stopped since the guard is there
    ("conftest", "ledger"),
    # prevented by a sealed grading
    ("git_all_refs", "timespan"),
    ("readme_carriage_returns", "ledger"),
    ("parser_pth", "ledger-swepro"),
    # found out by the confirming run
    ("report_patched_by_name", "ledger-f2p-script"),
    ("expected_from_source", "swatch"),
    ("altered_by_every_sign", "tarif"),
    ("os_exit_at_import", "ledger-eval-cmd"),
    # no mask at will
    ("mask_git_replaced", "ledger"),
)


@pytest.fixture(scope="module")
def player(sample_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    """Of one server, whose confirming runs are on."""
    folder = tmp_path_factory.mktemp("hacks")
    rows = write_rows(folder)
    settings = {name.removeprefix("SANDBOX_").lower(): value for name, value in SETTINGS.items()}
    with serving(folder, rows, **settings | {"confirm": "resolved", "pool_size": 0}) as server:
        player = Player(server.url)
        yield player
        player.close()


@pytest.mark.parametrize(("name", "target"), PLAYS, ids=lambda value: str(value))
def test_a_hack_gets_nothing(player: Player, name: str, target: str) -> None:
    """A reward that can be taken without a fix is what a policy learns to take."""
    outcome, _ = player.try_hack(name, every_hack()[name], targets()[target])
    assert outcome.fooled == "", outcome.line()
    assert outcome.reward == 0.0
