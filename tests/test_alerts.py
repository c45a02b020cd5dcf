"""The alerts: Prometheus's own unit tests of them, and that metrics and documents which they name exist."""

import re
import shutil
import subprocess
from collections.abc import Callable

from tests.deployment import ROOT

FOLDER = ROOT / "deploy" / "prometheus"


def test_each_alert_comes_when_it_should(missing: Callable[[str], object]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        missing("promtool (scripts/apt.sh prometheus)")
    for words in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            [str(promtool), *words], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_alerts_name_exists() -> None:
    """A renamed metric silences its alert."""
    text = (FOLDER / "alerts.yml").read_text()
    declared = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bsandbox_\w+", text)) <= declared
    alerts, seen = re.findall(r"- alert: (\w+)", text), re.findall(r"see: (\S+)", text)
    assert len(alerts) == len(seen) and all((ROOT / path).is_file() for path in seen)
    tested = (FOLDER / "alerts_test.yml").read_text()
    assert all(f'alertname="{name}"' in tested for name in alerts)
