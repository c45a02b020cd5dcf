"""Crafted logs for the swebench library, and the instance that they are of."""

from sandbox_server.catalogue.instance import SandboxSpec, SwebenchGrader, TaskInstance

_SCRIPT = """#!/bin/bash
set -uxo pipefail
cd /testbed
: '>>>>> Start Test Output'
pytest -rA tests
: '>>>>> End Test Output'
git checkout .
"""
START, END = "+ : '>>>>> Start Test Output'\n", "+ : '>>>>> End Test Output'\n"


def instance(
    f2p: tuple[str, ...] = ("t.py::f1", "t.py::f2"),
    p2p: tuple[str, ...] = ("t.py::p1", "t.py::p2"),
    *,
    eval_type: str = "pass_and_fail",
    parser: str = "parse_log_pytest",
) -> TaskInstance:
    grader = SwebenchGrader(eval_script=_SCRIPT, log_parser=parser, eval_type=eval_type)  # type: ignore[arg-type]  # a row's text
    return TaskInstance(
        instance_id="g__g-1",
        repo="g/g",
        version="1.0",
        sandbox=SandboxSpec(images=("unused",)),
        grader=grader,
        fail_to_pass=f2p,
        pass_to_pass=p2p,
    )


def summary(f1: str = "PASSED", f2: str = "PASSED", p1: str = "PASSED", p2: str = "PASSED") -> str:
    named = {"t.py::f1": f1, "t.py::f2": f2, "t.py::p1": p1, "t.py::p2": p2}
    return "".join(f"{outcome} {name}\n" for name, outcome in named.items() if outcome)


def whole(body: str, exit_code: int | None = 0) -> str:
    recorded = "" if exit_code is None else f">>>>> Test Exit Code: {exit_code}\n"
    return f"+ cd /testbed\n{START}{body}{END}{recorded}"
