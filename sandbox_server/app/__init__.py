"""The HTTP application: `create_app(settings, build)` combines the parts with the protocols in front of them."""

import gc

# imports free next to nothing, and the collections that their many new objects set off are a tenth of their CPU
_collecting = gc.isenabled()
gc.disable()
try:
    from sandbox_server.app.factory import create_app
    from sandbox_server.app.parts import Build, Parts
finally:
    if _collecting:
        gc.enable()

__all__ = ["Build", "Parts", "create_app"]
