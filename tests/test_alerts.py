"""Alerts and dashboard: Prometheus's own unit tests of the alerts, and that what alerts and dashboard name exists."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.deployment import ROOT, output

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


def test_the_dashboard_shows_every_metric_and_no_other(missing: Callable[[str], object], tmp_path: Path) -> None:
    """A renamed metric leaves a panel empty; a query that Prometheus cannot parse shows an error."""
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "sandbox-server.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    named = {re.sub(r"_bucket$", "", name) for query in queries for name in re.findall(r"\bsandbox_\w+", query)}
    assert named == set(re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    promtool = shutil.which("promtool")
    if promtool is None:
        missing("promtool (scripts/apt.sh prometheus)")
    asked = [query.replace("$__rate_interval", "1m").replace("$node", ".*") for query in queries]
    (tmp_path / "rules.json").write_text(
        json.dumps({"groups": [{"name": "dashboard", "rules": [{"record": "it", "expr": query} for query in asked]}]})
    )
    done = subprocess.run(
        [str(promtool), "check", "rules", "--lint=none", str(tmp_path / "rules.json")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout, done.stdout


def test_the_monitoring_of_compose_finds_its_files(compose_command: list[str]) -> None:
    """The containers would start with empty folders in their place."""
    output(*compose_command, "--profile", "monitoring", "config", "-q")
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    mounts = [one.partition(":")[0] for name in ("prometheus", "grafana") for one in services[name]["volumes"]]
    files = [ROOT / mount for mount in mounts if mount.startswith(".")]
    assert len(files) == 3 and all(file.exists() for file in files)
    assert all(port.startswith("127.0.0.1:") for port in services["grafana"]["ports"])
