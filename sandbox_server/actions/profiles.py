"""Observation profiles, for all tools: their names, the head line, the length limit."""

OPENHANDS = "openhands-0.17"
"""Texts of OpenHands 0.14 to 0.17 (BashSession; editor of openhands-aci 0.1.2)."""
PLAIN = "plain"
"""Bare output."""

MAX_OBSERVATION_CHARS = 30_000
_CUT = "\n[... Observation truncated due to length ...]\n"


def cut_middle(text: str) -> str:
    """`text` with its middle cut out if longer than MAX_OBSERVATION_CHARS. Source: OpenHands truncate_content."""
    if len(text) <= MAX_OBSERVATION_CHARS:
        return text
    half = MAX_OBSERVATION_CHARS // 2
    return text[:half] + _CUT + text[-half:]


def headed(tool: str, text: str, profile: str) -> str:
    """`text` under the line that OpenHands puts before every tool result; unchanged in other profiles."""
    return f"EXECUTION RESULT of [{tool}]:\n{text}" if profile == OPENHANDS else text


def in_seconds(timeout_s: float) -> str:
    """A command's time limit as text: from 10 s on in whole seconds, because upstream writes only those.

    The limit is the setting less the action's wait for its turn, for example 99.987 s, which gives "100".
    """
    return str(round(timeout_s)) if timeout_s >= 10 else f"{timeout_s:.2g}"
