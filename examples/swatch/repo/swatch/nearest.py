"""The closest named colour."""


def nearest(palette, rgb):
    """Name of the colour of `palette` with the least squared distance to `rgb`."""
    return min(palette.colours, key=lambda name: sum((a - b) ** 2 for a, b in zip(palette.colours[name], rgb)))
