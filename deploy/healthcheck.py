"""Exit 0 when the server of this container answers: /readyz (engine, Redis and SQL too), or the path that is given."""

import os
import sys
import urllib.request
from pathlib import Path


def keys() -> str:
    """SANDBOX_API_KEYS as the server has them; "" for none."""
    if given := os.environ.get("SANDBOX_API_KEYS"):
        return given
    secret = Path(os.environ.get("SANDBOX_SECRETS_DIR", "/run/secrets"), "sandbox_api_keys")
    return secret.read_text() if secret.is_file() else ""


path = sys.argv[1] if len(sys.argv) > 1 else "/readyz"
request = urllib.request.Request(f"http://127.0.0.1:{os.environ['SANDBOX_PORT']}{path}")
if key := keys().split(",")[0].strip():
    request.add_header("X-API-Key", key)
try:
    urllib.request.urlopen(request, timeout=4).close()
except OSError as error:
    sys.exit(str(error))
