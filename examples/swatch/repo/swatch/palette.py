"""Reading and writing the binary palette."""

from dataclasses import dataclass
from pathlib import Path

MAGIC = b"PAL1"
BUILT_IN = Path(__file__).parent / "data"


class BadPalette(ValueError):
    """The bytes are not a palette."""


@dataclass(frozen=True)
class Palette:
    colours: dict

    @classmethod
    def from_bytes(cls, data):
        if data[:4] != MAGIC:
            raise BadPalette("no PAL1 at the start")
        colours, at = {}, 5
        for _ in range(data[4]):
            red, green, blue, length = data[at : at + 4]
            colours[data[at + 4 : at + 4 + length].decode()] = (red, green, blue)
            at += 4 + length
        if at != len(data):
            raise BadPalette(f"{len(data) - at} bytes too many")
        return cls(colours)

    def to_bytes(self):
        out = bytearray(MAGIC + bytes([len(self.colours)]))
        for name, rgb in self.colours.items():
            encoded = name.encode()
            out += bytes([*rgb, len(encoded)]) + encoded
        return bytes(out)


def load(name="basic"):
    """A built-in palette."""
    return Palette.from_bytes((BUILT_IN / f"{name}.pal").read_bytes())
