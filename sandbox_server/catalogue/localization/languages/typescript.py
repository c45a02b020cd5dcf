"""TypeScript and TSX."""

from sandbox_server.catalogue.localization.languages._ecmascript import named
from sandbox_server.catalogue.localization.languages._grammar import outline
from sandbox_server.catalogue.localization.outline import Outline


class TypeScript:
    """As JavaScript. Interfaces and enums are modules; a namespace is not part of a name."""

    suffixes = (".ts", ".mts", ".cts", ".tsx")

    def outline(self, source: bytes, suffix: str) -> Outline:
        """See `Language`."""
        function = "language_tsx" if suffix == ".tsx" else "language_typescript"
        return outline(source, package="tree-sitter-typescript", named=named, function=function)


LANGUAGE = TypeScript()
