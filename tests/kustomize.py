"""As much of `kustomize build` as deploy/kubernetes uses; tests/test_kubernetes.py compares it with the real one."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]


def build(folder: Path) -> list[Document]:
    """The documents of a kustomization, its components' and its own patches applied."""
    kustomization = _kustomization(folder)
    documents: list[Document] = []
    for resource in kustomization.get("resources", ()):
        path = folder / resource
        documents += build(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    for component in kustomization.get("components", ()):
        _patch(documents, folder / component)
    _patch(documents, folder)
    if namespace := kustomization.get("namespace"):
        for document in documents:
            if document["kind"] != "Namespace":
                document["metadata"]["namespace"] = namespace
    for image in kustomization.get("images", ()):
        for container in containers(documents):
            if container["image"].partition(":")[0] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
    return documents


def containers(documents: list[Document]) -> Iterator[Document]:
    """Of every pod template, sidecars included."""
    for document in documents:
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        yield from pod.get("initContainers", [])
        yield from pod.get("containers", [])


def _kustomization(folder: Path) -> Document:
    return dict(yaml.safe_load((folder / "kustomization.yaml").read_text()))


def _patch(documents: list[Document], folder: Path) -> None:
    for entry in _kustomization(folder).get("patches", ()):
        patch = yaml.safe_load((folder / entry["path"]).read_text())
        target = entry.get("target") or {"kind": patch["kind"], "name": patch["metadata"]["name"]}
        (found,) = (
            document
            for document in documents
            if (document["kind"], document["metadata"]["name"]) == (target["kind"], target["name"])
        )
        if isinstance(patch, list):
            for operation in patch:
                _operate(found, operation)
        else:
            _merge(found, patch)


def _merge(into: Document, patch: Document) -> None:
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            assert not isinstance(value, list), "lists are merged by rules of their own: use a JSON patch"
            into[key] = deepcopy(value)


def _operate(document: Document, operation: Document) -> None:
    """One of RFC 6902's `test`, `remove` and `replace`."""
    *way, last = (step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:])
    place: Any = document
    for step in way:
        place = place[int(step) if isinstance(place, list) else step]
    key: Any = int(last) if isinstance(place, list) else last
    match operation["op"]:
        case "test":
            assert place[key] == operation["value"], operation
        case "remove":
            del place[key]
        case "replace":
            place[key] = deepcopy(operation["value"])
        case other:
            raise NotImplementedError(other)
