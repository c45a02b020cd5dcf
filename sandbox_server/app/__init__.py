"""The HTTP application: `create_app(settings, build)` combines the parts with the protocols in front of them."""

from sandbox_server.app.factory import create_app
from sandbox_server.app.parts import Build, Parts

__all__ = ["Build", "Parts", "create_app"]
