"""Where a session begins, by the weights alone."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.fleet.placement import Wanted, score
from sandbox_server.state.nodes import Holders, NodeRecord

NOBODY = Holders(frozenset(), frozenset())


def node(name: str, used: int = 0, *, waiting: int = 0, parked: int = 0) -> NodeRecord:
    return NodeRecord(name, "", "", slots=10, used=used, waiting=waiting, parked={"i": parked})


def best(
    nodes: list[NodeRecord], holders: Holders = NOBODY, here: str = "", placed: dict[str, int] | None = None
) -> str:
    wanted, placed = Wanted("i", holders), placed or {}
    return max(nodes, key=lambda n: score(n, wanted, placed=placed.get(n.node, 0), here=n.node == here)).node


def test_a_prepared_image_counts_more_than_some_room() -> None:
    holders = Holders(frozenset("ab"), frozenset("a"))
    assert best([node("a", 4), node("b")], holders) == "a"
    assert best([node("a", 6), node("b")], holders) == "b"


def test_a_parked_container_counts_until_it_is_promised() -> None:
    holders = Holders(frozenset("ab"), frozenset("ab"))
    nodes = [node("a", 4, parked=2), node("b")]
    assert best(nodes, holders) == "a"
    assert best(nodes, holders, placed={"a": 2}) == "b"
    assert best([node("a", 3, parked=1), node("b")], holders, placed={"a": 1}) == "b"


def test_a_full_node_is_the_last_choice() -> None:
    holders = Holders(frozenset("a"), frozenset("a"))
    assert best([node("a", 10), node("b", 9)], holders) == "b"
    assert best([node("a", 10, waiting=30), node("b", 10, waiting=2)], holders) == "b"


def test_the_server_that_was_asked_wins_a_tie_but_not_more() -> None:
    holders = Holders(frozenset("ab"), frozenset("ab"))
    assert {best([node("a"), node("b")], holders, here=name) for name in "ab"} == {"a", "b"}
    assert best([node("a"), node("b", 1)], holders, here="b") == "a"


@given(st.text(max_size=20), st.permutations([f"n{number}" for number in range(8)]))
def test_all_servers_send_a_new_instance_to_the_same_node(instance_id: str, names: list[str]) -> None:
    """Else each would have its own node pull the image."""
    wanted = Wanted(instance_id, NOBODY)
    ranked = sorted((node(name) for name in names), key=lambda n: (score(n, wanted, placed=0, here=False), n.node))
    assert ranked[-1].node == max(sorted(names), key=lambda n: score(node(n), wanted, placed=0, here=False))


def test_new_instances_spread() -> None:
    names = [f"n{number}" for number in range(8)]
    places = {
        max(names, key=lambda n: score(node(n), Wanted(f"i-{number}", NOBODY), placed=0, here=False))
        for number in range(100)
    }
    assert places == set(names)
