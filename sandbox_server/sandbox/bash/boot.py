"""The first process of a container, for a backend to create it with: the loop around the shell, or one that waits."""

import shlex
from importlib import resources

from sandbox_server.sandbox.container import DEFAULT_ACTIVATION, ContainerSpec

_BOOT, _RC, _READY = (
    resources.files(__package__).joinpath(name).read_text() for name in ("boot.bash", "rc.bash", "ready.bash")
)

# -p: nothing of the image's environment (BASH_ENV, SHELLOPTS) reaches what is ours
_BASH = ("bash", "--noprofile", "--norc", "-p", "-c")
_WAIT = (
    "while :; do sleep 3600 & wait $!; done"  # without a trap: with one, signals from inside reach the first process
)

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
    """The arguments of the first process; `first` is bash text that it runs before all else.

    With a shell it needs a terminal as its stdin and stdout, /run/sandbox in memory, and an init above it that reaps
    and passes signals on to its process group.
    """
    if not spec.with_shell:
        return [*_BASH, first + _WAIT, "sandbox"]
    return [*_BASH, first + _BOOT, "sandbox", _start_file(spec)]


def environment(spec: ContainerSpec) -> dict[str, str]:
    """The container's environment beside the image's; what `spec` says comes last."""
    return {**(_SHELL_ENVIRONMENT if spec.with_shell else {}), **spec.env}


def _start_file(spec: ContainerSpec) -> str:
    # the working directory by the name it was given: the engine resolves links
    begin = f"cd -- {shlex.quote(spec.workdir)} 2> /dev/null"
    return "\n".join((_RC, spec.activate or DEFAULT_ACTIVATION, begin, _READY))
