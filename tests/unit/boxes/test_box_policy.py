"""What a box may have, by the operator's settings and the request."""

import pytest

from sandbox_server.app.limits import box_policy
from sandbox_server.boxes.policy import BoxPolicy
from sandbox_server.errors import MalformedRequest
from sandbox_server.records import BoxRecord
from sandbox_server.settings import Settings


def policy(*, cpus: float = 8.0, **settings: object) -> BoxPolicy:
    return box_policy(Settings(**settings), cpus=cpus)  # type: ignore[arg-type] # values of any setting


def test_a_box_gets_no_more_cpus_than_the_engine_has() -> None:
    """The engine refuses such a container, so each box of that size would fail."""
    assert policy(cpus=2.0).size({"size": "lg"}, None, None).cpus == 2.0
    assert policy(cpus=0.0).size({"size": "lg"}, None, None).cpus == 4.0, "unknown"
    assert policy().size({"size": "md"}, 1.5, 700).cpus == 1.5 and policy().size({"size": "none"}, None, None).cpus == 2


def test_a_copy_is_as_large_as_its_original() -> None:
    """A copy of a box with a larger disk would be ended for the files that it was made with."""
    box = BoxRecord("1", "e2b", "i", "", {}, {}, "root", "t", "none", 1.0, 100, 77_000, 0.0)
    copied = policy().size_like(box, {})
    assert (copied.cpus, copied.memory_mb, copied.disk_mb) == (1.0, 100, 77_000)
    assert policy().size_like(box, {"size": "md"}).memory_mb == 4096


@pytest.mark.parametrize("asked_s", [-1.0, 86_401.0])
def test_a_life_has_bounds(asked_s: float) -> None:
    """A box that has ended before it began, or one that never ends."""
    with pytest.raises(MalformedRequest, match="SANDBOX_BOX_MAX_S"):
        policy().life_s(asked_s)
    assert [policy().life_s(life_s) for life_s in (None, 0.0, 86_400.0)] == [300.0, 0.0, 86_400.0]


def test_sudo_works_in_the_named_images_alone() -> None:
    """One pattern would open set-user-ID programs in every box."""
    allowed = policy(box_sudo_images="ubuntu:*,tools")
    images = ["ubuntu:22.04", "tools", "debian:12", "x/ubuntu:1"]
    assert [allowed.may_sudo(image) for image in images] == [True, True, False, False]
    assert not policy().may_sudo("ubuntu:22.04")


def test_whose_template_a_box_is_of() -> None:
    """A client's template of the same name would replace the operator's image, or the other way round."""
    named = policy(box_templates={"base": "python:3.12"})
    asked = [("", "base", {}), ("", "mine", {}), ("img", "mine", {}), ("", "mine", {"image": "img"})]
    assert [named.by_template(*one) for one in asked] == [False, True, False, False]
