"""Login shells of one container that can start without running their profile, since its effect is known (`profile`)."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from sandbox_server import telemetry
from sandbox_server.errors import ServiceError
from sandbox_server.sandbox.base import ExecResult
from sandbox_server.sandbox.bash import profile
from sandbox_server.sandbox.bash.exec_request import ExecRequest

log = telemetry.logger(__name__)

_LEARN_AT = 3  # uses; many boxes run a command or two, and looking costs as much as they do
_LEARN_S = 1.0  # that a profile may take
_LEARN_TRIES = 3  # of a profile that changes
_LEARN_MOST = 48  # in a container; one whose every call has another environment would learn for ever
_KEPT = 16  # of a container: users, folders and environments that commands come with


@dataclass(frozen=True, slots=True)
class Login:
    """A profile whose effect is known."""

    name: str
    definition: str
    """Bash functions, defined once in each channel. `__sb_same_NAME` is true while what the profile depends on is
    unchanged; `__sb_env_NAME` sets the variables that the profile sets."""


@dataclass(slots=True)
class _Seen:
    uses: int = 0
    tries: int = 0
    login: Login | None = None


class Logins:
    """Learns what the profile does for login shells that are started the same way again and again."""

    def __init__(self, run: Callable[[ExecRequest], Awaitable[ExecResult]]) -> None:
        """`run` runs a request in the container."""
        self._run = run
        self._seen: OrderedDict[object, _Seen] = OrderedDict()
        self._learned = 0

    async def of(self, request: ExecRequest) -> Login | None:
        """The known profile of a command; None: the profile has to run."""
        if not request.is_login_shell:
            return None
        key = request.argv[0], request.user, request.home_cwd, request.cwd, tuple(request.env.items())
        seen = self._seen.setdefault(key, _Seen())
        self._seen.move_to_end(key)
        if len(self._seen) > _KEPT:
            self._seen.popitem(last=False)
        seen.uses += 1
        if seen.login is None and seen.uses >= _LEARN_AT and seen.tries < _LEARN_TRIES and self._learned < _LEARN_MOST:
            seen.uses, seen.tries = 0, seen.tries + 1  # others meanwhile do not learn it too
            self._learned += 1
            try:
                seen.login = await self._learn(request, str(self._learned))
            except profile.NotPlain as e:
                log.debug("a profile runs for each command", reason=str(e))
                seen.tries = _LEARN_TRIES
            except ServiceError as e:  # if it is one for the command too, that will meet it itself
                log.debug("a profile could not be looked at", code=e.code, error=e.detail)
        return seen.login

    def changed(self, login: Login) -> None:
        """Forget a profile that a channel has found out of date."""
        for seen in self._seen.values():
            if seen.login is login:
                seen.login = None

    async def _learn(self, request: ExecRequest, name: str) -> Login:
        first = await self._report(request, profile.NOTHING)
        found = replace(first.dependencies, files=(profile.USERS, *first.dependencies.files))
        # once more, with what it depends on as it is before: both must have been the same for the same to come of it
        again = await self._report(request, found)
        if (again.dependencies, again.exports) != (first.dependencies, first.exports):
            raise profile.NotPlain("it is different each time")
        return Login(name, profile.definition(name, found, again))

    async def _report(self, request: ExecRequest, dependencies: profile.Dependencies) -> profile.Report:
        argv = [request.argv[0], "--noprofile", "-l", "-c", profile.script(dependencies)]
        told = await self._run(
            replace(request, argv=argv, stdin=False, pty=None, merge_streams=False, timeout_s=_LEARN_S)
        )
        if told.exit_code != 0 or told.stdout.dropped:
            raise profile.NotPlain("it fails, takes long or says much")
        return profile.report(told.stdout.text(), told.stderr.text())
