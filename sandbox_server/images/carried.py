"""Images of tasks that are graded by their files instead of a diff. The images of their sessions never contain the
tests.
"""

import hashlib
from collections.abc import Mapping

from sandbox_server.catalogue.harbor.archives import unpacked
from sandbox_server.catalogue.instance import HarborGrader, TaskInstance
from sandbox_server.images.preparing import Preparing
from sandbox_server.sandbox.base import Sandbox

_FOLDERS = "/logs/agent /logs/verifier /logs/artifacts"
# $1: the agent's user, "" for root; $2: workdir; $3: workspace path; $4...: other names of the workspace
_OPEN = f"""
set -e
if [[ $1 ]]; then
  [[ $1 != *[!0-9]* ]] || id -u -- "$1" > /dev/null || {{ echo "there is no user $1 (user of [agent])" >&2; exit 3; }}
  command -v setpriv > /dev/null || {{ echo 'an agent that is not root needs setpriv of util-linux' >&2; exit 3; }}
fi
shift
mkdir -p -m 777 -- /logs {_FOLDERS}
mkdir -p -- "$1"
workdir=$1
shift
[[ $(cd -- "$workdir" && pwd -P) == "$workdir" ]] || {{ echo "there is a link in $workdir" >&2; exit 3; }}
for name in "$@"; do
  mkdir -p -- "${{name%/*}}"
  [[ -e $name || -L $name ]] || ln -s -- "$workdir" "$name"
done
"""
# $1: size in bytes of the archive of the tests, which is read from stdin; 0: the image has the tests
_SEAL = f"""
set -e
mkdir -p -m 777 -- /logs {_FOLDERS}
mkdir -p -- "$2"
if (($1)); then
  rm -rf -- /tests
  mkdir -- /tests
  tar -x -z -f - -C /tests --no-same-owner
fi
[[ -f /tests/test.sh ]] || {{ echo 'the image of its verifier has no /tests/test.sh' >&2; exit 3; }}
chmod +x /tests/test.sh
"""


def facts(instance: TaskInstance) -> list[str]:
    """The inputs of these steps, for the hash in the name of the image."""
    grader = instance.grader
    tests = grader.tests if isinstance(grader, HarborGrader) else ""
    return [hashlib.sha256(tests.encode()).hexdigest(), _SEAL, _OPEN, instance.workspace, instance.sandbox.user]


async def seal(preparing: Preparing, instance: TaskInstance, sandbox: Sandbox) -> Mapping[str, str]:
    """Place the tests where gradings run them."""
    assert isinstance(instance.grader, HarborGrader)  # only these tasks carry files
    archive = unpacked(instance.grader.tests)
    what = f"{instance.instance_id} (mend its tests)"
    argv = ["bash", "-c", _SEAL, "seal", str(len(archive)), instance.grader.workdir or instance.sandbox.workdir]
    await preparing.run(sandbox, argv, cwd="/", what=what, stdin=archive)
    if not instance.grader.images:  # the agent's files may name the workspace by its path
        await open_workspace(preparing, instance, sandbox)
    return {}


async def open_workspace(preparing: Preparing, instance: TaskInstance, sandbox: Sandbox) -> Mapping[str, str]:
    """Create the folders that a task may write to, and the agent's workspace."""
    own = instance.sandbox
    argv = ["bash", "-c", _OPEN, "open", own.user, own.workdir, instance.workspace, *instance.workspace_aliases]
    await preparing.run(sandbox, argv, cwd="/", what=f"{instance.instance_id} (mend the image)")
    return {}
