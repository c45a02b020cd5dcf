"""Templates, built by the real SDK on a server with two tenants."""

import base64
import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT

from .e2b import BASE, KEY, TEMPLATES, Control, sdk
from .serving import Server, docker, serving, until

OTHER = "e2b_" + "1" * 40
BUILD = f"""
import os, tempfile
from e2b import Sandbox, Template, wait_for_file
folder = tempfile.mkdtemp()
os.makedirs(folder + "/app/data")
open(folder + "/app/main.txt", "w").write("main")
open(folder + "/app/data/one.txt", "w").write("one")
open(folder + "/single.txt", "w").write("single")
os.symlink("main.txt", folder + "/app/link")
said = []
template = (
    Template(file_context_path=folder)
    .from_image("{BASE}")
    .set_envs({{"GREETING": "hello", "PATH": "/opt/own:$PATH"}})
    .run_cmd("mkdir /opt/own; printf '#!/bin/sh\\\\necho $GREETING' >/opt/own/greet; chmod 755 /opt/own/*", user="root")
    .copy("app", "/srv/app", user="user")
    .copy("single.txt", "/srv/app/", mode=0o600)
    .set_workdir("/srv/app")
    .run_cmd("id -un >who; pwd >where; echo said $GREETING")
    .set_start_cmd("sleep 0.5; cat main.txt >/tmp/started; exec sleep 1000", wait_for_file("/tmp/started"))
)
before = Template.exists("made")
note = lambda one: said.append(one.message)
built = Template.build(template, "made:v1", tags=["default"], memory_mb=512, on_build_logs=note)
derived = Template.build(Template().from_template("made").run_cmd("cat data/one.txt >two"), "derived")
dockerfile = Template().from_dockerfile("FROM {BASE}\\nWORKDIR /work\\nENV A=b\\nRUN echo $A >here\\nUSER root\\n")
Template.build(dockerfile, "dockerfile:v1")
def runs(name, *commands):
    with Sandbox.create(name, timeout=60) as box:
        return [box.commands.run(command).stdout.strip() for command in commands]
try:
    Template.build(Template().from_image("{BASE}").run_cmd("echo no >&2; exit 3"), "broken")
    broken = ""
except Exception as error:
    broken = f"{{type(error).__name__}}: {{error}}"
result = {{
    "before": before,
    "after": [Template.exists(name) for name in ("made", "made:v1", "made:v2", "broken", "dockerfile")],
    "tags": sorted(one.tag for one in Template.get_tags("made")),
    "said": said,
    "made": runs(
        "made:v1", "greet",
        "cat who where main.txt data/one.txt single.txt link | tr '\\\\n' ' '",
        "stat -c %U:%a single.txt",
        "cat /tmp/started", "pwd", "id -un", "pgrep -cxf 'sleep 1000'",
    ),
    "build": runs(f"made:{{built.build_id}}", "greet"),
    "derived": runs("derived", "cat two", "cat /tmp/started"),
    "dockerfile": runs("dockerfile:v1", "cat here", "pwd", "id -un"),
    "broken": broken,
    "id": built.template_id,
    "build_id": built.build_id,
}}
"""


@pytest.fixture(scope="module")
def server(rows: Path, sample_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with an operator and two tenants."""
    keys = f"operators-key,lab={KEY},other={OTHER}"
    with serving(
        tmp_path_factory.mktemp("templates"),
        rows,
        api_keys=keys,
        box_templates=TEMPLATES,
        template_files_mb=1,
        box_network="none",
        box_sudo_images="sandbox-samples/b*",
    ) as server:
        yield server
        assert [entry for entry in server.complaints() if entry["level"] in ("error", "critical")] == []
    _remove_images()


def _remove_images() -> None:
    """Remove the images of templates; one that another stands on, or a box that just ends, goes in a later round."""

    def gone() -> bool:
        images = docker("images", "-q", "--filter", "label=sandbox.template_owner=lab").split()
        if images:
            subprocess.run(["docker", "rmi", "-f", *images], capture_output=True, timeout=60, check=False)
        return not images

    until(gone, 10, "the images removed")


@pytest.fixture(scope="module")
def built(server: Server) -> dict[str, Any]:
    """What the SDK has found."""
    return dict(sdk(server, "newest", BUILD))


def test_the_sdk_builds_and_runs_templates(built: dict[str, Any]) -> None:
    """All steps, a start command, a template of a template, a Dockerfile: as E2B's builder describes them."""
    assert not built["before"] and built["after"] == [True, True, False, False, True], built
    assert built["tags"] == ["default", "v1"]
    assert "said hello" in built["said"], built["said"]
    assert built["made"] == ["hello", "user /srv/app mainonesinglemain", "user:600", "main", "/srv/app", "user", "1"]
    assert built["build"] == ["hello"], "Harbor names a template's build in place of a tag"
    assert built["derived"] == ["one", "main"]
    assert built["dockerfile"] == ["b", "/work", "root"]
    assert built["broken"].startswith("BuildException") and "exit code 3: no" in built["broken"], built["broken"]


def test_a_template_is_its_keys_own(server: Server, built: dict[str, Any]) -> None:
    """Another tenant neither sees, starts, deletes nor builds on it; nor by the name of its image."""
    other = Control(server, **{"X-API-KEY": OTHER})
    (image,) = docker(
        "images",
        "sandbox-prepared",
        "--format",
        "{{.Repository}}:{{.Tag}}",
        "-q",
        "--filter",
        "label=sandbox.template_owner=lab",
    ).split()[:1]
    assert other.call("GET", "/templates").json() == []
    link = Control(server, **{"X-API-KEY": KEY}).call("GET", f"/e2b/templates/{built['id']}/files/any").json()["url"]
    assert link.startswith(f"{server.url}/e2b/templates-upload/")
    for name in ("made", built["id"]):
        assert other.call("GET", f"/templates/aliases/{name}").status_code == 404
        assert other.call("GET", f"/templates/{name}").status_code == 404
        assert other.call("DELETE", f"/templates/{name}").status_code == 404
        assert other.call("POST", "/sandboxes", {"templateID": name}).status_code == 404
        build = other.call("POST", "/v3/templates", {"name": "mine"}).json()
        path = f"/v2/templates/{build['templateID']}/builds/{build['buildID']}"
        assert other.call("POST", path, {"fromTemplate": name}).status_code == 404
        assert other.call("POST", "/sandboxes", {"templateID": f"mine:{built['build_id']}"}).status_code == 404
    refused = other.call("POST", "/sandboxes", {"metadata": {"image": image}})
    assert refused.status_code == 404, refused.text


def _archive(name: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        made.addfile(tarfile.TarInfo(name))
    return out.getvalue()


@pytest.mark.parametrize(
    ("archive", "why"),
    [
        (_archive("../../etc/passwd"), "is outside"),
        (b"not an archive", "cannot be read"),
        (_archive("other"), "nothing of this name"),
    ],
    ids=["name", "no-archive", "nothing"],
)
def test_hostile_archives(server: Server, archive: bytes, why: str) -> None:
    """The build fails and says why."""
    control = Control(server)
    build = control.call("POST", "/v3/templates", {"name": "hostile"}).json()
    template, build_id = build["templateID"], build["buildID"]
    link = control.call("GET", f"/templates/{template}/files/{build_id}").json()
    assert httpx.put(link["url"], content=archive, trust_env=False, timeout=30).status_code == 200
    steps = [{"type": "COPY", "args": ["app", "/srv/app", "", ""], "filesHash": build_id}]
    path = f"/templates/{template}/builds/{build_id}"
    assert control.call("POST", f"/v2{path}", {"fromImage": BASE, "steps": steps}).status_code == 202

    until(lambda: control.call("GET", f"{path}/status").json()["status"] in ("ready", "error"), what="the build's end")
    status = control.call("GET", f"{path}/status").json()
    assert status["status"] == "error" and why in status["reason"]["message"], status
    assert status["reason"]["step"] == "1"


def test_uploads_are_bounded_and_need_their_link(server: Server) -> None:
    """A stranger cannot fill the database, nor can a tenant."""
    control = Control(server)
    build = control.call("POST", "/v3/templates", {"name": "large"}).json()
    url = control.call("GET", f"/templates/{build['templateID']}/files/abc").json()["url"]
    assert httpx.put(url, content=b"x" * (2 << 20), trust_env=False, timeout=30).status_code == 413
    assert httpx.put(url[:-1], content=b"x", trust_env=False, timeout=30).status_code == 404


def test_an_image_that_is_gone_is_built_again(server: Server, built: dict[str, Any]) -> None:
    """A node whose engine lacks the image builds it from the definition; a restarted server knows it."""
    server.restart()
    _remove_images()
    control = Control(server)
    box = control.create(templateID="derived")
    control.kill(box["sandboxID"])
    listed = {one["aliases"][0]: one["buildStatus"] for one in control.call("GET", "/templates").json()}
    assert listed["derived"] == "ready" and listed["broken"] == "error", listed
    assert control.call("DELETE", f"/templates/{built['id']}").status_code == 204
    assert control.call("GET", "/templates/aliases/made").status_code == 404


DRAWN = """
import asyncio, sys, types
class Image:
    def __init__(self, name): self.name = name
    def __repr__(self): return self.name
    def _repr_png_(self): return b"png"
    def _repr_html_(self): return "<b>1</b>"
    def savefig(self, file, **_): file.write(self.name.encode())
plots = sys.modules["matplotlib.pyplot"] = types.ModuleType("pyplot")  # as matplotlib's, which is not installed here
plots.get_fignums, plots.figure, plots.close = lambda: [1], lambda number: Image("figure"), lambda what: None
await asyncio.sleep(0)
display(Image("shown"))
await asyncio.sleep(0, Image("last"))
"""
INTERPRETER = f"""
import runpy
DRAWN = {DRAWN!r}
runpy.run_path({str(ROOT / "examples" / "code_interpreter" / "build.py")!r})
from e2b_code_interpreter import Sandbox
box = Sandbox.create(timeout=300)
seen = []
box.run_code("import os; x = 41; os.chdir('/tmp')")
shown = box.run_code("print('hello'); x + 1", on_stdout=lambda said: seen.append(said.line))
failed = box.run_code("1 / 0")
told = box.run_code("import os; os.environ['A']", envs={{"A": "b"}})
result = [
    shown.text, shown.logs.stdout, seen, shown.execution_count, failed.error.name, told.text,
    box.run_code("import sys; sys.exit(3)").error.name, box.run_code("x").text,
    box.run_code("for n in 1, 2:\\n    !echo $((n + 1)) $0; exit 3\\n'after'"), box.run_code(DRAWN), box.kill(),
]
result[-3] = [result[-3].logs.stdout, result[-3].text]
result[-2] = [result[-2].text, [(one.text, one.html, one.png, one.is_main_result) for one in result[-2].results]]
box = Sandbox.create(timeout=300)
context = box.create_code_context(cwd="/tmp")
result += [
    box.run_code("import os; y = 1; os.getcwd()", context=context).text, box.run_code("y").error.name,
    context.id in [one.id for one in box.list_code_contexts()], box.restart_code_context(context),
    box.run_code("y", context=context).error.name, box.remove_code_context(context), box.list_code_contexts(),
]
"""


def test_the_code_interpreter_runs_in_a_template_of_ours(server: Server) -> None:
    """Without wildcard DNS, by E2B's headers: its requests reach no port, or its streams are cut.

    smolagents' first request is `!pip install ...`.
    """
    told = sdk(server, "newest", INTERPRETER)
    assert told[:3] == ["42", ["hello\n"], ["hello\n"]] and told[3] == 2, told
    assert told[4:8] == ["ZeroDivisionError", "'b'", "SystemExit", "41"], told
    assert told[8] == [["1 /bin/bash\n"] * 2, "'after'"], told
    image = ("<b>1</b>", base64.b64encode(b"png").decode())
    figure = ["figure", None, base64.b64encode(b"figure").decode(), False]
    assert told[9:11] == [["last", [["shown", *image, False], ["last", *image, True], figure]], True], told
    assert told[11:] == ["'/tmp'", "NameError", True, None, "NameError", None, []], told


@pytest.mark.parametrize(("image", "gains"), [(BASE, True), ("sandbox-samples/swatch:latest", False)])
def test_sudo_only_where_the_operator_allows_it(server: Server, image: str, gains: bool) -> None:
    """A program with the set-user-ID bit makes a policy's user root in an image that nobody named."""
    control = Control(server)
    made = control.create(metadata={"image": image})
    status = docker("exec", server.container(made["sandboxID"]), "cat", "/proc/1/status")
    assert f"NoNewPrivs:\t{0 if gains else 1}\n" in status and "CapBnd:\t00000000000401fb\n" in status, status
    control.kill(made["sandboxID"])
