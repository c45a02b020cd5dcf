"""JavaScript, with JSX."""

from sandbox_server.catalogue.localization.languages._ecmascript import named
from sandbox_server.catalogue.localization.languages._grammar import outline
from sandbox_server.catalogue.localization.outline import Outline


class JavaScript:
    """Methods of an object that is assigned to a name belong to that name."""

    suffixes = (".js", ".jsx", ".mjs", ".cjs")

    def outline(self, source: bytes, suffix: str) -> Outline:
        """See `Language`."""
        return outline(source, package="tree-sitter-javascript", named=named)


LANGUAGE = JavaScript()
