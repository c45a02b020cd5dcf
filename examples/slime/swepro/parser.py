"""Arguments: the tests' stdout and stderr, where to write {"tests": [{"name", "status"}]}."""

import json
import re
import sys
from pathlib import Path


def main(stdout: str, _stderr: str, result: str) -> None:
    lines = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED) (\S+)", Path(stdout).read_text(errors="replace"), re.MULTILINE)
    Path(result).write_text(json.dumps({"tests": [{"name": name, "status": status} for status, name in lines]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
