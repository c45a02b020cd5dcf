"""The text of observations of the persistent shell: one class per profile. Pure.

OpenHandsFrame reproduces BashSession of OpenHands 0.14 to 0.17, with its agent's exit-code line. Deliberate
differences: the prompt does not abbreviate the home directory to `~`; cases in which upstream never answered (the shell
ended, everything was killed, a NUL byte) are reported in one bracketed line of our own.
"""

from collections.abc import Sequence
from typing import Protocol

from sandbox_server.actions.profiles import cut_middle, in_seconds
from sandbox_server.sandbox.base import ShellOutcome, ShellResult

NUL_REFUSED = "[The command holds a NUL byte, which bash cannot take. Nothing was run.]"
NUL_EXIT_CODE = 2
NOTHING_RUNNING_EXIT_CODE = -1
INTERRUPT_EXIT_CODE = 130


class ShellFrame(Protocol):
    """The texts of one profile, without the tool's head line."""

    def ran(self, steps: Sequence[tuple[str, ShellResult]], *, timeout_s: float) -> str:
        """After commands (or input to a running one), each with its result."""
        ...

    def polled(self, result: ShellResult | None) -> str:
        """After an empty command; None: nothing was running."""
        ...

    def interrupted(self, result: ShellResult | None) -> str:
        """After `ctrl+c`; None: nothing was running."""
        ...

    def refused(self) -> str:
        """After a command with a NUL byte."""
        ...


class OpenHandsFrame:
    r"""Echo, terminal output with its `\r\n`, interpreter, prompt, exit code."""

    def ran(self, steps: Sequence[tuple[str, ShellResult]], *, timeout_s: float) -> str:
        """Each command and its output, separated by blank lines; interpreter and prompt once, at the end."""
        parts: list[str] = []
        interpreter = ""
        for command, result in steps:
            shown = [command, "\r\n", result.output.text(), _timeout(result, timeout_s), _fate(result), "\r\n"]
            if result.python:
                interpreter = _prompt(result)
            else:
                # Upstream removes the prompt by its interpreter line, so without that line it stays.
                shown.append(_prompt(result))
            parts.append("".join(shown))
        return _closed("\r\n".join(parts).rstrip("\r\n") + interpreter, steps[-1][1].exit_code)

    def polled(self, result: ShellResult | None) -> str:
        """New output, with the prompt if the command has ended."""
        if result is None:
            return _closed("", NOTHING_RUNNING_EXIT_CODE)
        text = f"\r\n{result.output.text()}{_fate(result)}\r\n{_prompt(result)}"
        return _closed(text.rstrip("\r\n"), result.exit_code)

    def interrupted(self, result: ShellResult | None) -> str:
        """`^C`, further output, and whether SIGINT was enough."""
        output = "^C\r\n" if result is None else result.output.text()
        fate = "" if result is None else _fate(result)
        killed = result is not None and result.outcome is ShellOutcome.KILLED
        note = f"[SIGINT was sent to interrupt the command{_BUT_KILLED if killed else '.'}]"
        return _closed(f"ctrl+c\r\n{output}\r\n\r\n{note}{fate}", interrupt_exit_code(result))

    def refused(self) -> str:
        """Only the reason."""
        return _closed(NUL_REFUSED, NUL_EXIT_CODE)


class PlainFrame:
    r"""Output with `\n` line ends; anything else is added only if it matters."""

    def ran(self, steps: Sequence[tuple[str, ShellResult]], *, timeout_s: float) -> str:
        """The outputs, then one line each for a timeout, a new shell, and an exit code other than 0."""
        last = steps[-1][1]
        return cut_middle(_lines("".join(_unix(result) for _, result in steps), _timeout(last, timeout_s), last))

    def polled(self, result: ShellResult | None) -> str:
        """New output."""
        return "[No command is running.]" if result is None else cut_middle(_lines(_unix(result), "", result))

    def interrupted(self, result: ShellResult | None) -> str:
        """Further output of the command."""
        return self.polled(result)

    def refused(self) -> str:
        """Only the reason."""
        return NUL_REFUSED


def interrupt_exit_code(result: ShellResult | None) -> int:
    """130 if SIGINT ended the command, whatever code it returned, or if none was running. Source: OpenHands 0.17."""
    if result is None or result.outcome is ShellOutcome.FINISHED:
        return INTERRUPT_EXIT_CODE
    return result.exit_code


_BUT_KILLED = ", but failed. The command was killed."


def _closed(text: str, exit_code: int) -> str:
    return f"{cut_middle(text)}\n[Command finished with exit code {exit_code}]"


def _prompt(result: ShellResult) -> str:
    if result.outcome is ShellOutcome.RUNNING:
        return ""
    interpreter = f"[Python Interpreter: {result.python}]" if result.python else ""
    sign = "#" if result.user == "root" else "$"
    return f"{interpreter}\n{result.user}@openhands-workspace:{result.cwd} {sign} "


def _timeout(result: ShellResult, timeout_s: float) -> str:
    """The note for a command that timed out, else ""."""
    if result.outcome not in (ShellOutcome.INTERRUPTED, ShellOutcome.KILLED):
        return ""
    seconds = in_seconds(timeout_s)
    end = "." if result.outcome is ShellOutcome.INTERRUPTED else _BUT_KILLED
    return f"\r\n\r\n[Command timed out after {seconds} seconds. SIGINT was sent to interrupt the command{end}]"


def _fate(result: ShellResult) -> str:
    """The bracketed line about a lost shell or killed processes, else ""."""
    said: list[str] = []
    restarted = result.restarted or result.outcome is ShellOutcome.RESTARTED
    if result.oom_killed:
        said.append("The sandbox ran out of memory.")
    if restarted:
        said.append("All processes of the sandbox were killed; its files are kept.")
    elif result.outcome is ShellOutcome.SHELL_ENDED:
        said.append(f"The shell exited with code {result.exit_code}.")
    elif result.shell_replaced:
        said.append("The shell no longer answered.")
    if restarted:
        # the last environment was on a tmpfs, which is lost with the container's main process
        said.append(f"A new shell was started in {result.cwd}; variables, functions and aliases are gone.")
    elif result.shell_replaced or result.outcome is ShellOutcome.SHELL_ENDED:
        said.append(
            f"A new shell was started in {result.cwd} with the last environment; "
            "functions, aliases and unexported variables are gone."
        )
    return f"\r\n\r\n[{' '.join(said)}]" if said else ""


def _unix(result: ShellResult) -> str:
    return result.output.text().replace("\r\n", "\n")


def _lines(output: str, timeout: str, result: ShellResult) -> str:
    """`output` followed by the notes, one per line."""
    lines = [output.rstrip("\n"), timeout.strip(), _fate(result).strip()]
    if result.outcome is ShellOutcome.RUNNING:
        lines.append("[The command is still running. Send an empty command to wait, text as its input, or ctrl+c.]")
    elif result.exit_code != 0:
        lines.append(f"[exit code: {result.exit_code}]")
    return "\n".join(line for line in lines if line)
