"""Makes the benchmark's eval scripts for rows without one. A program that `conversion` runs.

swebench 4.1.0, the last release that makes them, must precede 5.x on the path; importing it takes seconds, 180 MB and
half of 5.x's dependencies. stdin: one JSON row per line. stdout: for each row {eval_script, log_parser, eval_type,
library} or {because}. Only the eval half of the library is called, because the other half uses the network. Source: the
library's make_test_spec, version 4.1.0.
"""

import json
import sys

import swebench
from swebench.harness.constants import FAIL_ONLY_REPOS, MAP_REPO_VERSION_TO_SPECS
from swebench.harness.log_parsers import MAP_REPO_TO_PARSER
from swebench.harness.test_spec.create_scripts import make_eval_script_list

LIBRARY = f"swebench {swebench.__version__}"


def convert(row: dict[str, str]) -> dict[str, str]:
    """The library's script, parser and eval type for `row`, or why it has none."""
    repo, version = row["repo"], row["version"]
    if repo not in MAP_REPO_VERSION_TO_SPECS:
        return {"because": f"{LIBRARY} does not know the repository {repo}"}
    if version not in MAP_REPO_VERSION_TO_SPECS[repo]:
        return {"because": f"{LIBRARY} does not know version {version!r} of {repo}"}
    specs = MAP_REPO_VERSION_TO_SPECS[repo][version]
    lines = make_eval_script_list(row, specs, "testbed", "/testbed", row["base_commit"], row["test_patch"])
    return {
        "eval_script": "\n".join(["#!/bin/bash", "set -uxo pipefail", *lines]) + "\n",
        "log_parser": MAP_REPO_TO_PARSER[repo].__name__,
        "eval_type": "fail_only" if repo in FAIL_ONLY_REPOS else "pass_and_fail",
        "library": LIBRARY,
    }


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(convert(json.loads(line))) + "\n")
