"""The charts: inline SVG without style or script, coloured by class. Pure."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from markupsafe import Markup

_WIDTH = 1000.0


class _Action(Protocol):
    @property
    def seq(self) -> int: ...
    @property
    def tool(self) -> str: ...
    @property
    def started_at(self) -> float: ...
    @property
    def duration_s(self) -> float: ...


def stacked(seconds: Mapping[str, float], whole: float | None = None) -> Markup:
    """A bar of stage durations, scaled to `whole` seconds (default: their sum)."""
    total = sum(seconds.values())
    scale = _WIDTH / max(whole or total, 1e-9)
    parts, x = [], 0.0
    for stage, spent in seconds.items():
        width = spent * scale
        if width >= 0.5:
            parts.append(_rect(x, width, f"st-{stage}", f"{stage} {spent:.2f} s, {spent / total:.0%}"))
        x += width
    label = ", ".join(f"{stage} {spent:.1f} s" for stage, spent in seconds.items() if spent >= 0.05)
    return _svg(parts, label or "no time")


def timeline(began: float, actions: Iterable[_Action], ended: float) -> Markup:
    """Actions on the time axis from `began` to `ended`; the gaps are the model's time."""
    scale = _WIDTH / max(ended - began, 1e-9)
    parts = [_rect(0, _WIDTH, "st-model", "model")]
    for action in actions:
        x = min(_WIDTH, max(0.0, (action.started_at - began) * scale))
        width = max(1.5, min(_WIDTH - x, action.duration_s * scale))
        parts.append(_rect(x, width, "st-action", f"{action.seq} {action.tool} {action.duration_s:.2f} s"))
    return _svg(parts, f"{len(parts) - 1} actions in {ended - began:.1f} s")


def _rect(x: float, width: float, name: str, title: str) -> Markup:
    return Markup('<rect x="{}" y="0" width="{}" height="20" class="{}"><title>{}</title></rect>').format(
        f"{x:.2f}", f"{width:.2f}", name, title
    )


def _svg(parts: Iterable[Markup], label: str) -> Markup:
    return Markup(
        '<svg class="bar" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(label, Markup("").join(parts))
