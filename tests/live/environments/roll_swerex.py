"""Runs in SWE-ReX's own interface, in a session and in a box: `roll_swerex.py < job`, outcomes on stdout.

Runs in an environment of its own, with sandbox_client on PYTHONPATH. Each call has an event loop of its own, as in
SWE-agent.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["SWE_REX_LOG_STREAM_LEVEL"] = "CRITICAL"  # its log goes to stdout

from sandbox_client.errors import SandboxError
from sandbox_client.swerex import SandboxDeployment
from swerex.exceptions import SwerexException
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)


def told(work) -> dict:
    """What a call answers, or the error that it raises."""
    try:
        return asyncio.run(work).model_dump()
    except (SwerexException, FileNotFoundError) as error:
        return {"error": type(error).__name__, "message": str(error), "extra": getattr(error, "extra_info", {})}


def shells(job: dict) -> dict:
    """In a box: each of the commands in one shell, `other` in another; commands, files, a folder, an end."""
    deployment = SandboxDeployment(image=job["image"], url=job["url"])
    before = told(deployment.is_alive())
    asyncio.run(deployment.start())
    run = deployment.runtime
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rc").write_text("case $- in *i*) ;; *) return ;; esac\nalias greet='echo hello'\necho read")
        Path(folder, "bin").mkdir()
        Path(folder, "bin", "tool").write_text("#!/bin/sh\necho tool $1\n")
        Path(folder, "bin", "tool").chmod(0o755)
        asyncio.run(run.upload(UploadRequest(source_path=folder, target_path="/opt/tools")))
    opened = told(run.create_session(CreateBashSessionRequest(startup_source=["/opt/tools/rc"])))
    again = told(run.create_session(CreateBashSessionRequest()))
    asyncio.run(run.create_session(CreateBashSessionRequest(session="other")))
    said = []
    for action in job["commands"]:
        said.append(told(run.run_in_session(BashAction(**{"check": "silent", "timeout": 20, **action}))))
    asyncio.run(run.write_file(WriteFileRequest(path="/new/folder/text", content="é\r\n")))
    outcome = {
        "before": before,
        "sid": deployment.sid,
        "opened": opened,
        "again": again,
        "said": said,
        "interrupted": told(run.run_in_session(BashInterruptAction())),
        "read": told(run.read_file(ReadFileRequest(path="/new/folder/text"))),
        "missing": told(run.read_file(ReadFileRequest(path="/new/none"))),
        "executed": told(
            run.execute(Command(command="echo $A; pwd; echo wrong >&2", shell=True, cwd="/usr", env={"A": "1"}))
        ),
        "merged": told(run.execute(Command(command=["sh", "-c", "echo wrong >&2; exit 3"], merge_output_streams=True))),
        "checked": told(run.execute(Command(command="false", shell=True, check=True, error_msg="no"))),
        "slow": told(run.execute(Command(command=["sleep", "60"], timeout=1))),
        "closed": told(run.close_session(CloseBashSessionRequest())),
        "gone": told(run.run_in_session(BashAction(command="true"))),
    }
    asyncio.run(deployment.stop())
    return outcome


def graded(job: dict) -> dict:
    """In a session: a patch, and its reward after the end."""
    deployment = SandboxDeployment(instance=job["instance"], url=job["url"], run="swerex")
    asyncio.run(deployment.start())
    asyncio.run(deployment.runtime.create_session(CreateBashSessionRequest(startup_timeout=10)))
    said = told(deployment.runtime.run_in_session(BashAction(command=job["patch"], timeout=30)))
    asyncio.run(deployment.stop())
    asyncio.run(deployment.stop())
    return {"sid": deployment.sid, "said": said, **asyncio.run(deployment.reward()).to_wire()}


job = json.load(sys.stdin)
try:
    asyncio.run(SandboxDeployment(instance="no__such-1", url=job["url"]).start())
except SandboxError as error:
    unknown = type(error).__name__
json.dump({"box": shells(job), "session": graded(job), "unknown": unknown}, sys.stdout)
