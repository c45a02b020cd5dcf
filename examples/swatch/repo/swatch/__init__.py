from swatch.nearest import nearest
from swatch.palette import BadPalette, Palette, load

__all__ = ["BadPalette", "Palette", "load", "nearest"]
