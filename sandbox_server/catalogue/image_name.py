"""The syntax of image names. Source: distribution/reference, the grammar on top of reference.go. Pure."""

import re

_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_NAME = re.compile(rf"(?:(?:{_LABEL}(?:\.{_LABEL})*)(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*", re.ASCII)
_WHOLE = re.compile(rf"([^:@]+(?::[0-9]+/[^:@]+)?)(?::[a-zA-Z0-9_][a-zA-Z0-9_.-]{{0,127}})?(?:@{_DIGEST})?", re.ASCII)
_ID = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST = 255

WHY = (
    "no image can have this name: repository[:tag][@digest], its letters small (but those of a registry's host and of"
    " a tag)"
)


def is_image_name(text: str) -> bool:
    """Whether an engine could have an image with this name or id."""
    if len(text) > 2 * _LONGEST:
        return False
    if _ID.fullmatch(text):
        return True
    whole = _WHOLE.fullmatch(text)
    return whole is not None and len(whole[1]) <= _LONGEST and _NAME.fullmatch(whole[1]) is not None
