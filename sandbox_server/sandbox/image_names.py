"""Image names."""


def tagged(name: str) -> str:
    """The name as the engine lists it: with a tag, without the default registry."""
    name = name.removeprefix("docker.io/").removeprefix("library/")
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"
