"""Certificates on each database: parts of their own, for one row and one image."""

from dataclasses import replace

from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.certificates import Certificates
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.verdicts import Confirmation, GradedSession, Verdict, VerdictName

KEY = CertificateKey("a__a-1", "0" * 64, "sha256:1")


async def test_parts_are_kept_apart(database: Database) -> None:
    certificates = Certificates(database)
    assert await certificates.part(KEY, "variants") is None
    await certificates.update(KEY, "variants", {"units": [1], "text": "\0\ud800ü"})
    await certificates.update(KEY, "assay", {"flaky": []})
    await certificates.update(KEY, "variants", {"units": [2], "text": "\0\ud800ü"})
    assert await certificates.part(KEY, "variants") == {"units": [2], "text": "\0\ud800ü"}
    assert await certificates.part(KEY, "assay") == {"flaky": []}
    assert {(key, part) for key, part, _, _ in await certificates.of_instance("a__a-1")} == {
        (KEY, "variants"),
        (KEY, "assay"),
    }


async def test_another_row_or_image_has_another_certificate(database: Database) -> None:
    """An image that was repaired under its tag would be confirmed by the variants of the broken one."""
    certificates = Certificates(database)
    await certificates.update(KEY, "variants", {})
    for other in (replace(KEY, image_digest="sha256:2"), replace(KEY, row_sha256="1" * 64)):
        assert await certificates.part(other, "variants") is None


async def test_a_part_of_all_is_found(database: Database) -> None:
    """`doctor` asks which instances have drifted, whatever else is kept of them."""
    certificates = Certificates(database)
    other = replace(KEY, instance_id="b__b-2")
    await certificates.update(KEY, "drift", {"verdict": "resolved"})
    await certificates.update(other, "drift", {"verdict": "unresolved"})
    await certificates.update(other, "assay", {})
    found = {key: document for key, _, document in await certificates.everywhere("drift")}
    assert found == {KEY: {"verdict": "resolved"}, other: {"verdict": "unresolved"}}


async def test_which_have_no_false_tests_is_found(database: Database) -> None:
    """`doctor` counts where a fake would pay; a test's own text may look like the answer."""
    certificates = Certificates(database)
    other = replace(KEY, instance_id="b__b-2")
    await certificates.update(KEY, "variants", {"units": [], "files": {}})
    await certificates.update(other, "variants", {"units": [{"path": "a"}], "files": {"a": '"units": []'}})
    assert set(await certificates.without_variants()) == {(KEY, True), (other, False)}


async def test_a_verdict_keeps_its_confirmation(database: Database) -> None:
    confirm = Confirmation("tampered", "one test", 2, 3, 4, 1.5, ("run 1: \ud800",))
    verdict = Verdict(VerdictName.TAMPERED, mask=False, cause="", confirm=confirm)
    history = History(database)
    kept = await history.save_graded(GradedSession("1", "a", verdict, 0.0, "resolved", "r", 1.0), {}, "k")
    assert kept.verdict.confirm == confirm
    assert (await history.verdict_by_key("k")) == verdict
