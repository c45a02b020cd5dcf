"""The command of a container's first process: the loop that keeps the shell alive, or one that only waits."""

import shlex
from importlib import resources

from sandbox_server.sandbox.container import DEFAULT_ACTIVATION, ContainerSpec

_BOOT, _RC, STATE, _READY = (
    resources.files(__package__).joinpath(f"{name}.bash").read_text() for name in ("boot", "rc", "state", "ready")
)

# -p: ignore the image's BASH_ENV and SHELLOPTS
_BASH = ("bash", "--noprofile", "--norc", "-p", "-c")
_WAIT = "while :; do sleep 3600 & wait $!; done"  # no trap: it would let signals from inside end it

_SHELL_ENVIRONMENT = {
    "TINI_KILL_PROCESS_GROUP": "1",  # the init passes signals on to the sweeper (boot.bash)
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "PIP_PROGRESS_BAR": "off",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "TQDM_DISABLE": "1",
}


def command(spec: ContainerSpec, *, first: str = "") -> list[str]:
    """The command line of the first process; `first` is bash text that it runs before everything else.

    With a shell, it needs a terminal as stdin and stdout, /run/sandbox in memory, and an init above it that reaps and
    forwards signals to its process group.
    """
    if not spec.with_shell:
        return [*_BASH, first + _WAIT, "sandbox"]
    return [*_BASH, first + _BOOT, "sandbox", _start_file(spec), spec.user]


def environment(spec: ContainerSpec) -> dict[str, str]:
    """Environment variables in addition to the image's; those of `spec` take precedence."""
    return {**(_SHELL_ENVIRONMENT if spec.with_shell else {}), **spec.env}


def _start_file(spec: ContainerSpec) -> str:
    # cd to the path as given: the engine's working directory has its links resolved
    begin = f"cd -- {shlex.quote(spec.workdir)} 2> /dev/null"
    return "\n".join((_RC, spec.activate or DEFAULT_ACTIVATION, begin, STATE, _READY))
