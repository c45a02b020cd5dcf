"""Invalid image names are reported as the caller's mistake, before the engine is called."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.app.limits import box_policy
from sandbox_server.catalogue.image_name import is_image_name
from sandbox_server.catalogue.importing import read_instances
from sandbox_server.errors import RowRejected, UnknownImage
from sandbox_server.settings import Settings

GOOD = [
    "python:3.11",
    "sandbox-samples/base:latest",
    "swebench/sweb.eval.x86_64.astropy_1776_astropy-12907:latest",
    "jefzda/sweap-images:NodeBB.NodeBB__x-9",
    "Registry.example:5000/a/b__c@sha256:" + "0" * 64,
    "localhost/x",
    "sha256:" + "f" * 64,
    "a" * 255,
]
BAD = [
    "Infinity",
    "NaN:latest",
    "a/B",
    "a//b",
    "a\nb",
    "a\x00",
    "é",
    "-x",
    "a___b",
    "a:",
    "a:b:c",
    "a@sha256:0",
    "a" * 256,
    "../x",
    "a b",
    "",
]


@pytest.mark.parametrize("name", GOOD)
def test_names_that_can_be(name: str) -> None:
    """A row or a box with a right name would be refused."""
    assert is_image_name(name)


@pytest.mark.parametrize("name", BAD)
def test_names_that_cannot_be(name: str) -> None:
    """`Infinity` was reported as a retryable fault of the engine."""
    assert not is_image_name(name)
    if name:
        with pytest.raises(UnknownImage, match="no image can have this name") as refused:
            box_policy(Settings(), cpus=2).image(name, "", {})
        assert 400 <= refused.value.http_status < 500


@given(st.text(max_size=300))
def test_whatever_it_is_called(name: str) -> None:
    """Comparing a long name takes forever, or raises."""
    is_image_name(name)
    is_image_name(name * 3)


def test_a_row_with_such_a_name(tmp_path: Path) -> None:
    """It would be imported, and each of its starts fail."""
    row = {"instance_id": "a__b-1", "repo": "a/b", "base_commit": "0" * 40, "sandbox": {"images": ["Infinity"]}}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row))
    with pytest.raises(RowRejected, match=r"line 1: sandbox\.images names 'Infinity': no image can have this name"):
        read_instances(file, swebench4_dir=tmp_path)
