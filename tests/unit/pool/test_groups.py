"""How many starts of an instance are expected after the first."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.pool.groups import Groups


def arrive(groups: Groups, instance_id: str, times: int, now: float) -> list[int]:
    """What remains after each start."""
    remaining = []
    for _ in range(times):
        groups.arrived(instance_id, now)
        remaining.append(groups.remaining(instance_id))
    return remaining


def test_a_first_group_is_guessed_and_grows() -> None:
    """Nothing is prepared for the first group of a run, or for one larger than was thought."""
    groups = Groups(first_guess=4, window_s=30)
    assert arrive(groups, "a", 9, 0.0) == [3, 2, 1, 0, 3, 2, 1, 0, 3]


def test_the_size_is_learned() -> None:
    """The pool always prepares four containers, although the trainer asks for eight, or for one."""
    groups = Groups(first_guess=4, window_s=30)
    arrive(groups, "a", 8, 0.0)
    assert arrive(groups, "b", 1, 31.0) == [7], "what other groups were"
    assert arrive(groups, "a", 1, 31.0) == [7], "what its own was"
    assert groups.expected("c") == 8


def test_an_instance_is_remembered_whatever_others_do() -> None:
    """A validation with one sample each makes the training groups after it cold."""
    groups = Groups(first_guess=4, window_s=30)
    arrive(groups, "train", 8, 0.0)
    for number in range(40):
        arrive(groups, f"validation-{number}", 1, 100.0 * (number + 1))
    assert groups.expected("new") == 1
    assert arrive(groups, "train", 1, 9000.0) == [7]
    assert arrive(groups, "validation-3", 1, 9000.0) == [0]


def test_one_odd_group_changes_little() -> None:
    """One failed step makes all others wrong."""
    groups = Groups(first_guess=4, window_s=1)
    for number in range(6):
        arrive(groups, f"i{number}", 8, 10.0 * number)
    arrive(groups, "odd", 64, 100.0)
    arrive(groups, "single", 1, 110.0)
    assert groups.expected("new") == 8


def test_an_announced_group_is_taken_at_its_word() -> None:
    """A group in one call is guessed at, or is added to the one before."""
    groups = Groups(first_guess=4, window_s=30)
    arrive(groups, "a", 3, 0.0)
    groups.announce("a", 6, 1.0)
    assert groups.remaining("a") == 6
    assert arrive(groups, "a", 6, 1.0) == [5, 4, 3, 2, 1, 0]
    assert groups.expected("b") == 3, "the group before it is learned of"
    assert groups.remaining("never") == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.booleans()), max_size=60))
def test_what_remains_is_never_negative_and_bounded(events: list[tuple[str, int, bool]]) -> None:
    """A negative number of containers is expected, or more than twice what ever came."""
    groups, now = Groups(first_guess=4, window_s=30), 0.0
    for count, (instance_id, pause, announced) in enumerate(events, 1):
        now += pause
        if announced:
            groups.announce(instance_id, 5, now)
        groups.arrived(instance_id, now)
        assert 0 <= groups.remaining(instance_id) <= max(5, 2 * count)


def test_an_announcement_without_starts_is_no_group() -> None:
    """A trainer that announces and is restarted would teach that groups have no members."""
    groups = Groups(first_guess=4, window_s=30)
    groups.announce("a", 8, 0.0)
    groups.announce("a", 8, 1.0)
    assert groups.expected("a") == groups.expected("b") == 4
