"""The messages of the control plane, spelled as in E2B's API. Unknown fields are ignored, as E2B does."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sandbox_server.boxes.boxes import BoxView
from sandbox_server.catalogue.snapshots import Snapshot
from sandbox_server.protocols.e2b.access import ports_token

ENVD_VERSION = "0.6.4"
"""Tells clients which envd features exist: file metadata, all watch options, and everything older."""
_CLIENT_ID = "sandbox"  # deprecated in the API, but the field is required

Seconds = Annotated[int, Field(ge=0, le=2**31)]


class Message(BaseModel):
    """A request's body."""

    model_config = ConfigDict(extra="ignore")


class AutoResume(Message):
    """Whether requests resume a paused sandbox."""

    enabled: bool = False


class Network(Message):
    """The network rules of a sandbox; allowed takes precedence over denied."""

    allowOut: list[str] = []
    denyOut: list[str] = []
    allow_internet_access: bool | None = None
    allowPublicTraffic: bool | None = None
    """False: requests to its ports need the traffic token."""
    maskRequestHost: Annotated[str, Field(max_length=300, pattern=r"^[A-Za-z0-9.:_${}-]*$")] = ""
    """The host name in the requests that its ports get; `${PORT}` stands for the port."""
    rules: dict[str, object] | None = None
    egressProxy: dict[str, object] | None = None


class NewSandbox(Message):
    """POST /sandboxes."""

    templateID: str = "base"
    timeout: Seconds | None = None
    metadata: dict[str, str] = {}
    envVars: dict[str, str] = {}
    allow_internet_access: bool | None = None
    autoPause: bool | None = None
    autoPauseMemory: bool | None = None
    autoResume: AutoResume = AutoResume()
    network: Network = Network()
    iam: dict[str, object] | None = None
    volumeMounts: list[object] | None = None


def unsupported_field(body: NewSandbox) -> str:
    """Name of a field that asks for a feature which this server lacks; "" for none. Such a create must be refused: to
    ignore the field would mislead the client.
    """
    asked = {
        "iam": body.iam,
        "volumeMounts": body.volumeMounts,
        "network.rules": body.network.rules,
        "network.egressProxy": body.network.egressProxy,
    }
    return next((name for name, value in asked.items() if value), "")


class Timeout(Message):
    """POST /sandboxes/{id}/timeout."""

    timeout: Seconds | None = None


class Pause(Message):
    """POST /sandboxes/{id}/pause."""

    memory: bool | None = None


class Connect(Message):
    """POST /sandboxes/{id}/connect, /resume."""

    timeout: Seconds | None = None
    memory: bool | None = None
    autoPause: bool | None = None


class Refresh(Message):
    """POST /sandboxes/{id}/refreshes."""

    duration: Seconds | None = None


def sandbox(view: BoxView, domain: str) -> dict[str, object]:
    """The response to a create or a connect."""
    return {
        "templateID": view.box.template,
        "sandboxID": view.sid,
        "clientID": _CLIENT_ID,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": view.box.token,
        "alias": view.box.template,
        "trafficAccessToken": ports_token(view),
        "domain": domain or None,
    }


def state(view: BoxView) -> str:
    """State of a live box."""
    return "paused" if view.paused else "running"


def listed(view: BoxView) -> dict[str, object]:
    """An entry of a list."""
    box = view.box
    return {
        "templateID": box.template,
        "alias": box.template,
        "sandboxID": view.sid,
        "clientID": _CLIENT_ID,
        "startedAt": when(view.record.created_at).isoformat(),
        "endAt": when(view.ends_at).isoformat(),
        "envdVersion": ENVD_VERSION,
        "cpuCount": max(1, round(box.cpus)),
        "memoryMB": box.memory_mb,
        "diskSizeMB": box.disk_mb,
        "metadata": dict(box.metadata),
        "state": state(view),
    }


def detail(view: BoxView, domain: str) -> dict[str, object]:
    """All fields of a sandbox."""
    return listed(view) | {
        "envdAccessToken": view.box.token,
        "allowInternetAccess": view.box.network != "none",
        "domain": domain or None,
        "network": {
            "allowOut": list(view.box.allow_out),
            "denyOut": list(view.box.deny_out),
            "allowPublicTraffic": not view.box.traffic_token,
            **({"maskRequestHost": view.box.host_mask} if view.box.host_mask else {}),
        },
        **({"pauseMode": "filesystem" if view.record.asleep else "full"} if view.paused else {}),
        "lifecycle": {"autoResume": view.box.auto_resume, "onTimeout": view.box.on_timeout},
    }


def snapshot(taken: Snapshot) -> dict[str, object]:
    """A snapshot."""
    return {"snapshotID": taken.shown, "names": [taken.name] if taken.name else []}


def when(seconds: float) -> datetime:
    """Unix seconds as a datetime in whole microseconds."""
    return datetime.fromtimestamp(seconds, UTC)
