"""docker-compose.yaml of a Harbor task: what is read, and what is refused because it reaches the host."""

import base64
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_server.catalogue.importing import read_tasks
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.services import Health

Make = Callable[[str], Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """make(compose): a task with this docker-compose.yaml, and a folder `db` with a Dockerfile."""

    def task(compose: str) -> Path:
        for name, text in {
            "environment/Dockerfile": "FROM debian\nWORKDIR /app\n",
            "environment/db/Dockerfile": 'FROM debian\nENTRYPOINT ["/db"]\n',
            "environment/db/data/one.sql": "select 1",
            "environment/docker-compose.yaml": compose,
            "task.toml": "[environment.env]\nTAG = '7'\n",
            "instruction.md": "Do it.",
            "tests/test.sh": "true\n",
        }.items():
            path = tmp_path / "some-task" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "some-task"

    return task


def imported(folder: Path) -> TaskInstance:
    (instance,), refused = read_tasks(folder)
    assert not refused, refused
    return instance


FULL = """
services:
  main:
    build: {context: "${CONTEXT_DIR}"}
    image: ${MAIN_IMAGE_NAME}
    command: ["sh", "-c", "sleep infinity"]
    volumes:
      - ${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}
      - {type: bind, source: "${HOST_AGENT_LOGS_PATH}", target: "${ENV_AGENT_LOGS_PATH}"}
    deploy: {resources: {limits: {cpus: "${CPUS}", memory: "${MEMORY}"}}}
    depends_on: {web: {condition: service_healthy}, seed: {condition: service_completed_successfully}}
    environment: {URL: "http://web:${PORT:-80}", DEBUG: true}
    working_dir: /srv
  web:
    image: "acme/web:${TAG}"
    command: serve --text 'two words' $$HOME
    depends_on: [db]
    ports: ["8080:80"]
    restart: unless-stopped
    healthcheck: {test: curl -f localhost, interval: 30s, timeout: 1m30s}
    mem_limit: 64m
    cpus: 0.25
    environment: [A=1, B=]
    user: 1000
    container_name: front
    tmpfs: /tmp
  db:
    build: {context: ./db}
    volumes: ["data:/var/lib/db", "./db/data:/init:ro"]
    hostname: database
    profiles: []
  seed:
    build: ./db
    entrypoint: []
    volumes: [{type: volume, source: data, target: /d}, /scratch]
    depends_on: {db: {condition: service_started}}
  tools:
    image: never
    privileged: true
    profiles: [debug]
volumes: {data: {}}
x-note: nothing
"""


def test_all_that_public_tasks_use(make: Make) -> None:
    """A key is accepted and then forgotten: the service runs otherwise than its author meant."""
    own = imported(make(FULL)).sandbox
    services = {service.name: service for service in own.services}
    assert next(iter(services)) == "db" and set(services) == {"db", "web", "seed"}
    assert (own.env, own.workdir) == ({"URL": "http://web:80", "DEBUG": "true", "TAG": "7"}, "/srv")
    assert own.awaits == {"web": "healthy", "seed": "completed"}
    web, db, seed = services["web"], services["db"], services["seed"]
    assert (web.images, web.command) == (("acme/web:7",), ("serve", "--text", "two words", "$HOME"))
    assert web.health == Health(test=("/bin/sh", "-c", "curl -f localhost"), interval_s=1.0, timeout_s=90.0)
    assert (web.memory_mb, web.cpus, web.user, web.restart) == (64, 0.25, "1000", True)
    assert (web.env, web.aliases, web.tmpfs, web.after) == (
        {"A": "1", "B": ""},
        ("front",),
        ("/tmp",),
        {"db": "started"},
    )
    assert db.build is not None and db.images == (db.build.image,) == seed.images
    assert (db.volumes, db.hostname, db.aliases) == ({"/var/lib/db": "data"}, "database", ("database",))
    assert (seed.entrypoint, seed.volumes) == ((), {"/d": "data", "/scratch": "own-seed-1"})
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(db.files))) as files:
        assert files.getnames() == ["init", "init/one.sql"]


HOSTILE = {
    "privileged: true": "db: privileged",
    "cap_add: [SYS_ADMIN]": "db: cap_add",
    "network_mode: host": "db: network_mode",
    "pid: host": "db: pid",
    "ipc: host": "db: ipc",
    "userns_mode: host": "db: userns_mode",
    "cgroup_parent: /": "db: cgroup_parent",
    "devices: [/dev/kmsg]": "db: devices",
    "security_opt: [seccomp=unconfined]": "db: security_opt",
    "extra_hosts: ['host:host-gateway']": "db: extra_hosts",
    "sysctls: {a: 1}": "db: sysctls",
    "runtime: other": "db: runtime",
    "env_file: /etc/shadow": "db: env_file",
    "secrets: [a]": "db: secrets",
    "extends: {file: /etc/passwd, service: a}": "db: extends",
    "links: [main]": "db: links",
    "volumes: [/var/run/docker.sock:/s]": "db: the bind mount of /var/run/docker.sock",
    "volumes: ['~/.ssh:/s']": "db: the bind mount of ~/.ssh",
    "volumes: [../../x:/s]": "../../x is outside of the task",
    "volumes: [./db/../../x:/s]": "is outside of the task",
    "volumes: [{type: bind, source: /, target: /s}]": "db: the bind mount of /",
    "volumes: [{type: npipe, source: a, target: /s}]": "volumes of type npipe",
    "volumes: [{type: volume, source: a, target: /s, volume: {nocopy: true}}]": "db: volumes volume",
    "volumes: ['a:/proc']": "a volume at '/proc'",
    "volumes: [./missing:/s]": "environment/missing does not exist",
    "volumes: ['${HOST_AGENT_LOGS_PATH}:/s']": "a mount of Harbor's logs",
    "environment: [HOME]": "environment HOME, from the host",
    "command: '${AWS_SECRET}'": "$AWS_SECRET is from the host",
    "build: https://git.example/x": "is outside of the task",
    "build: ../..": "is outside of the task",
    "build: {context: ./db, args: {A: 1}}": "db: build: args",
    "build: {context: ./db, network: host}": "db: build: network",
    "build: {context: ., dockerfile: ../../x}": "is outside of the task",
    "image: sandbox-prepared:sealed-1": "its image is 'sandbox-prepared:sealed-1'",
    "image: docker.io/library/sandbox-prepared:sealed-1": "its image is",
    "image: x\n    cpus: .nan": "nan is not a number of CPUs",
    "image: x\n    cpus: -1": "-1 is not a number of CPUs",
    f"image: x\n    mem_limit: '{'9' * 400}'": "infinity",
    "image: x\n    deploy: {replicas: 9}": "deploy other than resources",
    "image: x\n    deploy: {resources: {reservations: {devices: [{}]}}}": "reservations.devices",
    "image: x\n    networks: [other]": "networks that keep services apart",
    "image: x\n    networks: {default: {ipv4_address: 1.2.3.4}}": "networks: ipv4_address",
    "image: x\n    hostname: 'a:1.2.3.4 b'": "the host name 'a:1.2.3.4 b'",
    "image: x\n    hostname: main": "the host name 'main'",
    "image: x\n    depends_on: [main]": "db: depends_on main",
    "image: x\n    depends_on: [db]": "in a circle",
    "image: x\n    healthcheck: {disable: true}": "healthcheck disable",
}


@pytest.mark.parametrize("keys", HOSTILE)
def test_what_reaches_the_host_is_refused_by_name(make: Make, keys: str) -> None:
    """A task of a public registry reads the host's files, or its containers are no sandboxes."""
    plain = "" if "build" in keys or "image" in keys else "    image: x\n"
    found, (why,) = read_tasks(make(f"services:\n  db:\n{plain}    {keys}\n"))
    assert not found and "some-task" in why and HOSTILE[keys] in why, why


WHOLE = {
    "services: {a: {image: x}}\nvolumes: {v: {driver_opts: {o: bind, device: /}}}": "volumes v: driver_opts",
    "services: {a: {image: x}}\nvolumes: {v: {external: true}}": "volumes v: external",
    "services: {a: {image: x}}\nnetworks: {n: {driver: host}}": "networks n: driver",
    "services: {a: {image: x}}\nnetworks: {n: {external: true}}": "networks n: external",
    "services: {a: {image: x}}\ninclude: [/etc/x.yaml]": "include",
    "services: {a: {image: x}}\nsecrets: {s: {file: /etc/shadow}}": "secrets",
    "services: {main: {image: other}}": "main: image other",
    "services: {main: {build: ./db}}": "main: a build of another image",
    "services: {main: {volumes: ['v:/app']}}": "main: the volume v:/app",
    "services: {main: {volumes: ['/:/host']}}": "main: the volume /:/host",
    "services: {main: {command: ./serve}}": "main: command",
    "services: {main: {privileged: true}}": "main: privileged",
    "services: {main: {network_mode: host}}": "main: network_mode",
    "services: {main: {depends_on: [a]}}": "main: depends_on a",
    "services: {'a b': {image: x}}": "services 'a b'",
    "services: {" + ", ".join(f"s{i}: {{image: x}}" for i in range(9)) + "}": "9 services beside main",
    "services: {a: {}}": "its image is ''",
    "services: [a]": "no mapping `services`",
    "a: [": "docker-compose.yaml:",
    "services: {a: {image: x, image: !!python/object:os.system y}}": "docker-compose.yaml:",
    "services: {a: {x-a: &a [1,1,1,1,1,1,1,1,1], x-b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a],"
    " x-c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b], x-d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c],"
    " x-e: [*d,*d,*d,*d,*d,*d,*d,*d,*d]}}": "more than 20000 values",
}


@pytest.mark.parametrize("text", WHOLE)
def test_what_cannot_be_served_is_refused_by_name(make: Make, text: str) -> None:
    """The import of a registry breaks, or its task runs without a part of what its file asks for."""
    found, (why,) = read_tasks(make(text))
    assert not found and WHOLE[text] in why, why


def test_a_verifier_of_several_containers_is_refused(make: Make) -> None:
    """A separate verifier runs without the services that its tests ask."""
    task = make("services: {}")
    (task / "task.toml").write_text("[verifier]\nenvironment_mode = 'separate'\n")
    (task / "tests" / "Dockerfile").write_text("FROM debian\nWORKDIR /tests\n")
    (task / "tests" / "docker-compose.yaml").write_text("services: {}")
    found, (why,) = read_tasks(task)
    assert not found and "tests/docker-compose.yaml (several containers)" in why, why
