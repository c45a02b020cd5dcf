"""The manifests of deploy/kubernetes: what an API server would refuse, and what it would take and never start."""

import os
import shutil
import subprocess
from itertools import chain, pairwise
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from sandbox_server.settings import Settings
from tests.kustomize import Document, build, containers

FOLDER = Path(__file__).resolve().parent.parent / "deploy" / "kubernetes"
OLDEST = "1.29"
"""The release from which sidecars are on by default; base/kustomization.yaml promises it."""


@pytest.fixture(params=["example", "host-engine"])
def folder(request, tmp_path) -> Path:
    """The example, and the same on the nodes' own engines."""
    example = FOLDER / "overlays" / "example"
    if request.param == "example":
        return example
    above = Path(os.path.relpath(FOLDER, tmp_path.resolve()))
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(above / "overlays" / "example")],
        "components": [str(above / "components" / "host-engine")],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return tmp_path


@pytest.fixture
def documents(folder) -> list[Document]:
    return build(folder)


def named(documents: list[Document], kind: str, name: str) -> Document:
    (found,) = (it for it in documents if it["kind"] == kind and it["metadata"]["name"] == name)
    return found


def workloads(documents: list[Document]) -> list[Document]:
    return [it for it in documents if it["kind"] in ("DaemonSet", "StatefulSet", "Deployment")]


def pod_of(workload: Document) -> Document:
    return dict(workload["spec"]["template"]["spec"])


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_every_document_is_of_its_schema(documents, version):
    """A misspelt field is dropped in silence by the API server, and what it was to do is never done."""
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


def test_kustomize_itself_builds_the_same(documents, folder):
    """What the other tests look at is what `kubectl apply -k` sends."""
    tool = [["kustomize", "build"]] if shutil.which("kustomize") else []
    tool += [["kubectl", "kustomize"]] if shutil.which("kubectl") else []
    if not tool:
        pytest.skip("kustomize or kubectl is needed")
    done = subprocess.run([*tool[0], str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    by_name = {(it["kind"], it["metadata"]["name"]): it for it in yaml.safe_load_all(done.stdout)}
    assert by_name == {(it["kind"], it["metadata"]["name"]): it for it in documents}


def test_every_file_is_listed():
    """A file that no kustomization names is deployed by nobody, and nobody misses it."""
    for kustomization in FOLDER.rglob("kustomization.yaml"):
        content = yaml.safe_load(kustomization.read_text())
        listed = set(content.get("resources", [])) | {patch["path"] for patch in content.get("patches", [])}
        beside = {path.name for path in kustomization.parent.glob("*.yaml")} - {kustomization.name}
        assert {name for name in listed if name.endswith(".yaml")} == beside, kustomization


def test_selectors_match(documents):
    """A Service or policy whose selector matches no pod is taken without a word."""
    pods = [workload["spec"]["template"]["metadata"]["labels"] for workload in workloads(documents)]
    for workload in workloads(documents):
        assert workload["spec"]["selector"]["matchLabels"] == workload["spec"]["template"]["metadata"]["labels"]
    selectors = [it["spec"]["selector"] for it in documents if it["kind"] == "Service"]
    for policy in (it["spec"] for it in documents if it["kind"] == "NetworkPolicy"):
        sides = [side for rule in policy.get("ingress", []) for side in rule["from"]]
        sides += [side for rule in policy.get("egress", []) for side in rule["to"]]
        ours = [side["podSelector"] for side in sides if "podSelector" in side and "namespaceSelector" not in side]
        selectors += [it["matchLabels"] for it in (policy["podSelector"], *ours) if it]
    assert len(selectors) >= 8
    for selector in selectors:
        assert any(selector.items() <= labels.items() for labels in pods), selector


def test_every_name_leads_somewhere(documents):
    """A pod that refers to what is not there waits in ContainerCreating for ever."""
    known = {
        "configMapRef": {it["metadata"]["name"] for it in documents if it["kind"] == "ConfigMap"},
        "secretKeyRef": {
            (it["metadata"]["name"], key) for it in documents if it["kind"] == "Secret" for key in it["stringData"]
        },
    }
    secrets = {name for name, _ in known["secretKeyRef"]}
    services = {it["metadata"]["name"]: it["spec"] for it in documents if it["kind"] == "Service"}
    for workload in workloads(documents):
        pod = pod_of(workload)
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
        mounts = set()
        for container in chain(pod.get("initContainers", []), pod["containers"]):
            mounts |= {mount["name"] for mount in container.get("volumeMounts", [])}
            for source in container.get("envFrom", []):
                assert source["configMapRef"]["name"] in known["configMapRef"]
            for variable in container.get("env", []):
                if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                    assert (reference["name"], reference["key"]) in known["secretKeyRef"]
            ports = {port["name"] for port in container.get("ports", [])}
            probes = [container.get(name, {}) for name in ("startupProbe", "livenessProbe", "readinessProbe")]
            assert {probe["httpGet"]["port"] for probe in probes if "httpGet" in probe} <= ports
        assert mounts == volumes | claims, "each volume is mounted, each mount has its volume"
        assert {it["secret"]["secretName"] for it in pod.get("volumes", []) if "secret" in it} <= secrets
        if workload["kind"] == "StatefulSet":
            assert services[workload["spec"]["serviceName"]]["clusterIP"] == "None"
    settings = named(documents, "ConfigMap", "sandbox-settings")["data"]
    assert {"redis", "postgres"} <= services.keys()
    assert settings["SANDBOX_REDIS_URL"].startswith("redis://redis:")
    assert "@postgres/" in settings["SANDBOX_DATABASE_URL"]


def test_every_setting_exists(documents):
    """The server ignores variables that it does not know: a misspelt one would change nothing."""
    known = {f"SANDBOX_{name.upper()}" for name in Settings.model_fields} | {"SANDBOX_SECRETS_DIR"}
    given = set(named(documents, "ConfigMap", "sandbox-settings")["data"])
    for container in containers(documents):
        given |= {it["name"] for it in container.get("env", []) if it["name"].startswith("SANDBOX_")}
    assert {f"sandbox_{name}" for name in ("api_keys", "database_password")} == set(
        named(documents, "Secret", "sandbox-secrets")["stringData"]
    )
    assert given <= known


def test_the_server_is_named_by_its_node_and_reached_by_its_address(documents):
    """With a node id of the pod's own, each new pod would find the sandboxes of the one before it to be nobody's."""
    pod = pod_of(named(documents, "DaemonSet", "sandbox-server"))
    assert pod["enableServiceLinks"] is False, "Kubernetes would set SANDBOX_PORT=tcp://..."
    (server,) = pod["containers"]
    names = [variable["name"] for variable in server["env"]]
    sources = {it["name"]: it["valueFrom"]["fieldRef"]["fieldPath"] for it in server["env"] if "valueFrom" in it}
    assert sources == {"SANDBOX_NODE_ID": "spec.nodeName", "POD_IP": "status.podIP"}
    assert server["env"][names.index("SANDBOX_NODE_URL")]["value"] == "http://$(POD_IP):5000"
    assert names.index("POD_IP") < names.index("SANDBOX_NODE_URL"), "only variables above are expanded"
    socket = server["env"][names.index("SANDBOX_DOCKER_URL")]["value"].removeprefix("unix://")
    mounts = {mount["name"]: mount["mountPath"] for mount in server["volumeMounts"]}
    assert socket == f"{mounts['engine-socket']}/docker.sock"
    assert server["env"][names.index("SANDBOX_SECRETS_DIR")]["value"] == mounts["secrets"]


def test_an_engine_of_the_pod_outlives_its_drain():
    """Containers of a pod end together: a plain second container would take the sandboxes down as the drain begins."""
    pod = pod_of(named(build(FOLDER / "overlays" / "example"), "DaemonSet", "sandbox-server"))
    (engine,) = pod["initContainers"]
    assert engine["restartPolicy"] == "Always" and engine["securityContext"] == {"privileged": True}
    (server,) = pod["containers"]
    mounts = [{it["name"]: it["mountPath"] for it in container["volumeMounts"]} for container in (engine, server)]
    assert f"--host=unix://{mounts[0]['engine-socket']}/docker.sock" in engine["args"]
    assert mounts[0]["engine-socket"] == mounts[1]["engine-socket"]
    drain = server["lifecycle"]["preStop"]["exec"]["command"]
    assert drain[:3] == ["sandbox-server", "drain", "--timeout-s"]
    assert int(drain[3]) < pod["terminationGracePeriodSeconds"]


def test_nothing_stateful_is_open(documents):
    """Whoever writes to Redis owns every session; the database holds the gold patches."""
    policies = {it["metadata"]["name"]: it["spec"] for it in documents if it["kind"] == "NetworkPolicy"}
    assert policies["nothing-else"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name in ("redis", "postgres"):
        (rule,) = policies[name]["ingress"]
        assert rule["from"] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "sandbox-server"}}}]
    assert all(it["spec"].get("type", "ClusterIP") == "ClusterIP" for it in documents if it["kind"] == "Service")


def test_redis_forgets_nothing(documents):
    """An eviction policy would drop live sessions as if they were a cache."""
    (redis,) = pod_of(named(documents, "StatefulSet", "redis"))["containers"]
    words = redis["command"] + redis["args"]
    options = {word: value for word, value in pairwise(words) if word.startswith("--")}
    assert options["--appendonly"] == "yes" and options["--maxmemory-policy"] == "noeviction"
