"""How images are named."""


def tagged(name: str) -> str:
    """The name as the engine lists it: with its tag, without the registry that goes without saying."""
    name = name.removeprefix("docker.io/").removeprefix("library/")
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"
