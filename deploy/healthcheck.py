"""Exit 0 when the server of this container is ready (engine, Redis and SQL answer)."""

import os
import sys
import urllib.request

request = urllib.request.Request(f"http://127.0.0.1:{os.environ['SANDBOX_PORT']}/readyz")
if keys := os.environ.get("SANDBOX_API_KEYS"):
    request.add_header("X-API-Key", keys.split(",")[0].strip())
try:
    urllib.request.urlopen(request, timeout=4).close()
except OSError as error:
    sys.exit(str(error))
