"""The test suites of a checkout of E2B's SDKs: how each is prepared, and the command that runs it (e2b_suite.py)."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".cache" / "e2b-suite"
SOCKET = WORK / "balancer.sock"
"""The balancer too."""
TEST_S = 180
"""Bound of one test; those of the suites are of a quiet machine."""
BROWSER = """
import { defineConfig } from 'vitest/config'
import { playwright } from '@vitest/browser-playwright'
const launchOptions = {
  executablePath: '/usr/bin/chromium',
  args: [
    '--no-sandbox',
    '--ignore-certificate-errors',
    `--host-resolver-rules=MAP *.${process.env.E2B_DOMAIN} ADDRESS`,
  ],
}
export default defineConfig({
  test: {
    include: ['tests/runtimes/browser/**/*.{test,spec}.tsx'],
    browser: {
      enabled: true,
      headless: true,
      connectTimeout: 300_000,
      instances: [{ browser: 'chromium' }],
      provider: playwright({ launchOptions }),
    },
    provide: { E2B_API_KEY: process.env.E2B_API_KEY, E2B_DOMAIN: process.env.E2B_DOMAIN },
  },
})
"""
"""The browser project of the suite's own configuration, with the machine's chromium and any authority."""
ADDRESS = "127.7.7.7"
"""Where the balancer answers."""
APART = """
defaults
    mode tcp
    timeout connect 5s
    timeout client 10m
    timeout server 10m
listen apart
    bind {address}:443
    server balancer unix@{socket}
"""
"""A balancer in the browser's network, which leads to the real one."""


class Python:
    """packages/python-sdk with pytest."""

    name = "Python"

    def __init__(self, checkout: Path) -> None:
        self.package = checkout / "packages" / "python-sdk"
        self.at = WORK / "python"

    def prepare(self) -> None:
        """Its environment: the checkout's own SDK, since the suite replaces parts of it."""
        about = tomllib.loads((self.package / "pyproject.toml").read_text())
        self.version = about["project"]["version"]
        shutil.rmtree(self.at / "package", ignore_errors=True)
        shutil.copytree(self.package, self.at / "package")
        tools = [one for one in about["dependency-groups"]["dev"] if not one.startswith(("ruff", "ty"))]
        wanted = [str(self.at / "package"), *tools]
        if not (python := self.at / "env" / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(self.at / "env")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *wanted], check=True)
        shutil.rmtree(self.at / "suite", ignore_errors=True)
        (self.at / "suite").mkdir()
        shutil.copytree(self.package / "tests", self.at / "suite" / "tests")
        shutil.copy(self.package / "pytest.ini", self.at / "suite")

    def command(self, report: Path, only: Sequence[str], workers: int) -> tuple[list[str], Path]:
        """The command that runs all tests, or those of `only`, and its folder."""
        words = [str(self.at / "env" / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        # limits are those of a quiet machine
        words += ["-W", "ignore", "-n", str(workers), "-o", f"timeout={TEST_S}", f"--junitxml={report}"]
        # by a thread, a test that takes too long would end its worker, and with it the run
        words += ["-o", "timeout_method=signal"]
        # a worker that died is told as `pytest::internal`, which cannot be run again
        return [*words, *(self.node(name) for name in only if "test_" in name)], self.at / "suite"

    @staticmethod
    def node(name: str) -> str:
        """The name of a report as pytest takes it."""
        path, _, test = name.partition("::")
        parts = path.split(".")
        files = [at for at, part in enumerate(parts) if part.startswith("test_")]
        at = files[0] if files else len(parts) - 1
        return "::".join(["/".join(parts[: at + 1]) + ".py", *parts[at + 1 :], test])


class JavaScript:
    """packages/js-sdk with vitest."""

    name = "JavaScript"

    def __init__(self, checkout: Path) -> None:
        self.package = checkout / "packages" / "js-sdk"
        self.at = WORK / "javascript"

    def prepare(self) -> None:
        """A copy with what its tests import: no tools that generate code or deploy."""
        about = json.loads((self.package / "package.json").read_text())
        self.version = about["version"]
        needless = re.compile(r"cloudflare|redocly|wrangler|knip|json-schema|openapi-typescript|npm-run-all|native")
        about["devDependencies"] = {
            name: version for name, version in about["devDependencies"].items() if not needless.search(name)
        }
        self.at.mkdir(parents=True, exist_ok=True)
        for part in self.at.iterdir():
            if part.name not in ("node_modules", "package-lock.json"):
                shutil.rmtree(part) if part.is_dir() else part.unlink()
        shutil.copytree(self.package, self.at, dirs_exist_ok=True)
        (self.at / "package.json").write_text(json.dumps(about))
        (self.at / "browser.config.mts").write_text(BROWSER.replace("ADDRESS", ADDRESS))
        (self.at / "apart.cfg").write_text(APART.format(address=ADDRESS, socket=SOCKET))
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"],
            cwd=self.at,
            check=True,
        )

    def command(self, report: Path, only: Sequence[str], workers: int) -> tuple[list[str], Path]:
        """The command that runs all tests, or the files that have those of `only`, and its folder."""
        run = f"npx vitest run --reporter=dot --reporter=junit --testTimeout={TEST_S * 1000}"
        files = sorted({name.partition("::")[0] for name in only})
        parts = [("unit", [file for file in files if "browser/" not in file])]
        if not only or any("browser/" in file for file in files):
            parts.append(("browser", []))
        words = {
            "unit": "--project unit --project connectionConfig --project template",
            "browser": "--config browser.config.mts",
        }
        # Chromium fails its requests when an interface is added, as each start of a container does
        inside = 'ip link set lo up; haproxy -D -p apart.pid -f apart.cfg; "$@"; kill $(cat apart.pid)'
        apart = f"unshare -n sh -c '{inside}' -"
        begin = {"unit": run, "browser": f"{apart} {run}"}
        script = "\n".join(
            f"{begin[part]} --maxWorkers={workers} --outputFile.junit={report}.{part} {words[part]} {' '.join(chosen)}"
            for part, chosen in parts
            if chosen or not only or part == "browser"
        )
        join = (
            f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from scripts.e2b_packages import join; join({str(report)!r})"
        )
        return ["sh", "-c", f"{script}\n{sys.executable} -c {json.dumps(join)}"], self.at


def join(report: str) -> None:
    """Make one report of those whose names begin so."""
    root = ElementTree.Element("testsuites")
    for part in sorted(Path(report).parent.glob(Path(report).name + ".*")):
        suites = ElementTree.parse(part).getroot()
        if next(suites.iter("testcase"), None) is None:  # e.g. the browser did not start in time
            case = ElementTree.SubElement(root, "testcase", classname=part.suffix, name="all")
            ElementTree.SubElement(case, "failure", message="no test ran")
        root.extend(suites)
    ElementTree.ElementTree(root).write(report)
