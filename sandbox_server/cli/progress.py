"""Shows a verb's progress: a bar if stderr is a terminal, else plain lines."""

import contextlib
import sys
from collections.abc import Iterator

import typer


class Progress:
    """One progress bar. Without a terminal it is not shown; then `tell` prints a line for each step instead."""

    def __init__(self, label: str) -> None:
        """`label`: the name of the steps, in the plural."""
        self._bar = typer.progressbar(length=1, label=label, file=sys.stderr, show_pos=True)
        self._shown = sys.stderr.isatty()

    def begin(self, length: int) -> None:
        """Start with `length` steps."""
        self._bar.length = max(1, length)
        if self._shown:
            self._bar.render_progress()

    def ran(self) -> None:
        """One step has ended."""
        if self._shown:
            self._bar.update(1)

    def tell(self, step: str) -> None:
        """Print a line unless a progress bar shows the same."""
        if not self._shown:
            typer.echo(step, err=True)

    def print(self, line: str, *, err: bool = False) -> None:
        """Print a result in place of the bar; the bar is drawn again at the end of the step."""
        if self._shown:
            typer.echo("\r\x1b[K", nl=False, err=True)
        typer.echo(line, err=err)

    def end(self) -> None:
        """End the bar's line."""
        if self._shown:
            self._bar.render_finish()


@contextlib.contextmanager
def progress(label: str, length: int = 0) -> Iterator[Progress]:
    """A bar during the block, with `length` steps if they are known by now."""
    bar = Progress(label)
    if length:
        bar.begin(length)
    try:
        yield bar
    finally:
        bar.end()
