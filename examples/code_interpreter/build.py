"""Builds the template that e2b-code-interpreter asks for, with the gateway beside this file: python build.py [BASE]

`BASE` is a template of the server with python3 and curl or bash, by default `base`.
"""

import sys
from pathlib import Path

from e2b import Template

HERE = Path(__file__).parent
READY = "exec 3<>/dev/tcp/127.0.0.1/49999"

template = (
    Template(file_context_path=str(HERE))
    .from_template(sys.argv[1] if len(sys.argv) > 1 else "base")
    .copy("gateway.py", "/opt/gateway.py")
    .set_start_cmd("python3 /opt/gateway.py", READY)
)
Template.build(template, "code-interpreter-v1", cpu_count=1, memory_mb=1024)
