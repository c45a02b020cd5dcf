"""`sandbox-server instances certificates`: the certificates of instances, as a table."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from sandbox_server.catalogue.certificates import Certificates
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.grading.assay import PART, Assay, finding

_ALL = 1_000_000
Row = dict[str, str | int | float | bool]


async def rows(instances: Instances, certificates: Certificates, ids: Sequence[str]) -> list[Row]:
    """One row for each certified image of these instances, or of all."""
    names = ids or [summary.instance_id for summary in await instances.list(gradable=True, limit=_ALL)]
    found = []
    for name in names:
        instance = await instances.by_id(name)
        documents: dict[str, dict[str, dict[str, Any]]] = {}
        made: dict[str, float] = {}
        for key, part, at, document in await certificates.of_instance(name):
            if key.row_sha256 == instance.row_sha256:
                documents.setdefault(key.image_digest, {})[part] = document
                made[key.image_digest] = max(at, made.get(key.image_digest, 0.0))
        found += [_row(instance, digest, parts, made[digest]) for digest, parts in documents.items()]
    return found


def _row(instance: TaskInstance, digest: str, parts: dict[str, dict[str, Any]], at: float) -> Row:
    assay = Assay.from_json(parts[PART]) if PART in parts else Assay()
    known = finding(instance, assay)
    faults = assay.faults
    worst = max((rate.odd / rate.runs for rate in known.flaky), default=0.0)
    gold = [trial for trial in assay.trials if trial.gold]
    return {
        "instance": instance.instance_id,
        "image": digest.removeprefix("sha256:")[:12],
        "assayed": bool(assay.trials),
        "sound": bool(assay.trials) and known.sound,
        "runs": len(assay.trials),
        "gold resolved": f"{sum(trial.verdict == 'resolved' for trial in gold)} of {len(gold)}",
        "flaky tests": len(known.quarantined),
        "worst flake rate": round(worst, 4),
        "free F2P": len(known.free),
        "F2P of stubs": len(known.stubs),
        "F2P": len(instance.fail_to_pass),
        "mutants": faults.made if faults else 0,
        "mutants noticed": faults.made - len(faults.survived) if faults else 0,
        "tests altered": len(parts.get("variants", {}).get("units", ())),
        "unconfirmed": str(parts.get("variants", {}).get("why", "not tried")),
        "made at": round(at, 1),
        "why": known.why,
    }


def written(found: Sequence[Row], style: str) -> str:
    """The table as csv, json or md. Raises ValueError: unknown `style`."""
    if style == "json":
        return json.dumps(found, indent=2)
    names = list(found[0]) if found else []
    if style == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
        return text.getvalue().rstrip("\n")
    if style == "md" and not found:
        return ""
    if style == "md":
        lines = [
            names,
            ["---"] * len(names),
            *([str(row[name]).replace("|", "\\|") for name in names] for row in found),
        ]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
    raise ValueError(f"unknown format {style!r}: use csv, json or md")
