import pytest

from swatch import BadPalette, Palette, load, nearest


def test_round_trip():
    palette = Palette({"black": (0, 0, 0), "grün": (0, 255, 0)})
    assert Palette.from_bytes(palette.to_bytes()) == palette


@pytest.mark.parametrize("data", [b"", b"PAL2\0", b"PAL1\0junk"])
def test_refuses(data):
    with pytest.raises(BadPalette):
        Palette.from_bytes(data)


def test_nearest():
    palette = Palette({"black": (0, 0, 0), "white": (255, 255, 255)})
    assert nearest(palette, (200, 190, 220)) == "white"


def test_the_built_in_palette_loads():
    assert {"black", "white", "red"} <= set(load().colours)
