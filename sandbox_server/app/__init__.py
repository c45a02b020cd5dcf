"""The HTTP application: `create_app(settings, build)` combines the parts with the protocols in front of them."""

import gc
import sys

# Imports make many objects and free almost none: the garbage collections that they set off take a tenth of their CPU.
_collecting = gc.isenabled()
gc.disable()
# structlog and httpx import rich if it is installed, for tracebacks and a command line that nothing here uses. This
# takes another tenth. With None as the module the import fails, which both of them handle.
_has_rich = "rich" in sys.modules
sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
try:
    from sandbox_server.app.factory import create_app
    from sandbox_server.app.parts import Build, Parts
finally:
    if not _has_rich:
        del sys.modules["rich"]
    # moves the new objects to the oldest generation without a collection, which the next new object would set off
    gc.freeze()
    gc.unfreeze()
    if _collecting:
        gc.enable()

__all__ = ["Build", "Parts", "create_app"]
