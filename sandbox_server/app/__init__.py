"""The HTTP application: `create_app(settings, build)` combines the parts with the protocols in front of them."""

import gc
import sys

# Imports make many objects and free almost none: the garbage collections that they set off take a tenth of their CPU.
_collecting = gc.isenabled()
gc.disable()
# Optional packages that others import if they are installed, for what nothing here uses; this takes a sixth. structlog
# and httpx import rich, for tracebacks and a command line, and redis imports OpenTelemetry's metrics. With None as the
# module the import fails, which they handle.
_unused = {"rich", "opentelemetry.sdk.metrics"} - sys.modules.keys()
sys.modules.update(dict.fromkeys(_unused))  # type: ignore[arg-type]
try:
    from sandbox_server.app.factory import create_app
    from sandbox_server.app.parts import Build, Parts
finally:
    for _name in _unused:
        del sys.modules[_name]
    # moves the new objects to the oldest generation without a collection, which the next new object would set off
    gc.freeze()
    gc.unfreeze()
    if _collecting:
        gc.enable()

__all__ = ["Build", "Parts", "create_app"]
