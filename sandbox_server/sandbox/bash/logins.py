"""Login shells of one container that can start without their profile, because its effect is known (`profile`)."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from sandbox_server import telemetry
from sandbox_server.errors import ServiceError
from sandbox_server.sandbox.base import ExecResult
from sandbox_server.sandbox.bash import profile
from sandbox_server.sandbox.bash.exec_request import ExecRequest

log = telemetry.logger(__name__)

_LEARN_AT = 3  # uses before learning; many boxes run only a command or two, and learning costs as much as they do
_LEARN_S = 1.0  # timeout of a learning run
_LEARN_TRIES = 3  # attempts per profile, for one that changes
_LEARN_MOST = 48  # per container; otherwise one whose every call has another environment would learn for ever
_KEPT = 16  # per container: combinations of user, folder and environment


@dataclass(frozen=True, slots=True)
class Login:
    """A profile whose effect is known."""

    name: str
    definition: str
    """Bash functions, defined once per channel. `__sb_same_NAME` is true while the profile's dependencies are
    unchanged; `__sb_env_NAME` sets the variables that the profile sets."""


@dataclass(slots=True)
class _Seen:
    uses: int = 0
    tries: int = 0
    login: Login | None = None


class Logins:
    """Learns what the profile does for login shells that are started repeatedly in the same way."""

    def __init__(self, run: Callable[[ExecRequest], Awaitable[ExecResult]]) -> None:
        """`run` runs a request in the container."""
        self._run = run
        self._seen: OrderedDict[object, _Seen] = OrderedDict()
        self._learned = 0

    async def of(self, request: ExecRequest) -> Login | None:
        """The known profile for a command; None if the profile has to run."""
        if not request.is_login_shell:
            return None
        key = request.argv[0], request.user, request.home_cwd, request.cwd, tuple(request.env.items())
        seen = self._seen.setdefault(key, _Seen())
        self._seen.move_to_end(key)
        if len(self._seen) > _KEPT:
            self._seen.popitem(last=False)
        seen.uses += 1
        if seen.login is None and seen.uses >= _LEARN_AT and seen.tries < _LEARN_TRIES and self._learned < _LEARN_MOST:
            seen.uses, seen.tries = 0, seen.tries + 1  # so that concurrent calls do not learn it too
            self._learned += 1
            try:
                seen.login = await self._learn(request, str(self._learned))
            except profile.NotPlain as e:
                log.debug("a profile runs for each command", reason=str(e))
                seen.tries = _LEARN_TRIES
            except ServiceError as e:  # if it also concerns the command, the command will raise it
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
        # a second run with the first run's dependencies unchanged: both must give the same result
        again = await self._report(request, found)
        if (again.dependencies, again.exports) != (first.dependencies, first.exports):
            raise profile.NotPlain("its effect differs from run to run")
        return Login(name, profile.definition(name, found, again))

    async def _report(self, request: ExecRequest, dependencies: profile.Dependencies) -> profile.Report:
        argv = [request.argv[0], "--noprofile", "-l", "-c", profile.script(dependencies)]
        done = await self._run(
            replace(request, argv=argv, stdin=False, pty=None, merge_streams=False, timeout_s=_LEARN_S)
        )
        if done.exit_code != 0 or done.stdout.dropped:
            raise profile.NotPlain("it fails, takes too long or prints too much")
        return profile.report(done.stdout.text(), done.stderr.text())
