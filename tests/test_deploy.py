"""The kits in `deploy` are true: schemas of their formats, Dagster's own checks of its settings, commands and variables that exist.

No test has Kubernetes, Docker or Helm. `docs/how-to/deploy.md` says what was run.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster
import jsonschema
import pytest
import yaml
from dagster import DagsterInstance, DagsterRun
from dagster._config import process_config
from dagster._core.instance.config import dagster_instance_config
from dagster._core.instance.ref import InstanceRef
from dagster._core.workspace.load import location_origins_from_yaml_paths
from dagster._serdes import ConfigurableClassData

from databuild_dagster.bindings.registry.instance import store_url
from databuild_dagster.features.health.pages import PROBES as OF_WEB_SERVER
from tests.cluster.services import COMMANDS
from tests.support.command import databuild
from tests.support.command_lines import why_not_typed
from tests.support.free_port import free_port
from tests.support.postgres import postgres_server

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
SUPPORT = Path(__file__).parent / "support"
KUBERNETES = json.loads((SUPPORT / "kubernetes.json").read_text())
GROUPS = {"v1": "core.v1", "apps/v1": "apps.v1", "batch/v1": "batch.v1", "rbac.authorization.k8s.io/v1": "rbac.v1"}

#: What the kits start beside the services of the cluster's tests, which have the same names there.
BESIDE_SERVICES = {
    "build": ("databuild", "build", "--keep-want"),
    "tick": ("databuild", "tick", "--until-idle", "--timeout"),
    "gc": ("databuild", "gc", "--older-than", "--yes"),
}
#: The ways to ask whether a part is well: commands, Dagster's service of gRPC, and paths of our web server.
PROBES = [
    ["dagster", "api", "grpc-health-check", "-p"],
    ["dagster-daemon", "liveness-check"],
    "DagsterApi",
    *(f"/databuild{probe.path}" for probe in OF_WEB_SERVER),
]
#: Variables that neither this package nor Dagster reads, and their reader.
READ_ELSEWHERE = {
    "AWS_ACCESS_KEY_ID": "botocore",
    "AWS_SECRET_ACCESS_KEY": "botocore",
    "LC_ALL": "Python",
    "PATH": "the shell",
    "POSTGRES_DB": "the image of PostgreSQL",
    "POSTGRES_PASSWORD": "the image of PostgreSQL, and compose.yaml",
    "POSTGRES_USER": "the image of PostgreSQL",
    "SPARK_URL": "the code of the project, as docs/how-to/deploy.md shows it",
}


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


MANIFESTS = [
    pytest.param(manifest, id=f"{path.stem}-{manifest['kind']}-{next(iter(manifest['metadata'].values()))}")
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in documents(path)
]
CONFIG_MAP = next(m.values[0] for m in MANIFESTS if m.values[0]["kind"] == "ConfigMap")
COMPOSE = documents(DEPLOY / "compose.yaml")[0]
VALUES = documents(DEPLOY / "helm" / "values.yaml")[0]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def check(value: Any, name: str) -> None:
    schema = {"$ref": f"#/$defs/io.k8s.api.{name}", "$defs": KUBERNETES["$defs"]}
    jsonschema.Draft202012Validator(schema).validate(value)


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The part of the deployment, and the template of its pod."""
    for parameter in MANIFESTS:
        spec = parameter.values[0].get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            yield template["metadata"]["labels"]["part"], template


PODS = [pytest.param(part, template, id=part) for part, template in pods()]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_is_one_of_kubernetes(manifest: dict[str, Any]) -> None:
    check(manifest, f"{GROUPS[manifest['apiVersion']]}.{manifest['kind']}")

    # Kubernetes takes a null for an optional value; in a manifest it is a slip of the pen.
    assert "null" not in yaml.safe_dump(manifest)
    assert manifest["kind"] == "Namespace" or manifest["metadata"]["namespace"] == "databuild"


def assert_confined(pod: dict[str, Any]) -> None:
    """No root, no file system but its own folders, and time to end."""
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] == 60
    assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000}
    confined = container["securityContext"]
    assert confined == {
        **confined,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"/tmp", "/opt/dagster/dagster_home"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["envFrom"] == [{"secretRef": {"name": "databuild"}}]


@pytest.mark.parametrize(("part", "template"), PODS)
def test_a_pod_has_no_rights_that_it_does_not_need(part: str, template: dict[str, Any]) -> None:
    assert_confined(template["spec"])

    # Only the daemon and those who cancel runs ask Kubernetes; the image and the account are the same for all.
    assert template["spec"]["serviceAccountName"] == "databuild"
    assert template["spec"]["containers"][0]["image"] == "registry.example/shop:1"


def test_one_daemon_and_one_code_server_run_also_while_they_are_replaced() -> None:
    specs = {
        m.values[0]["metadata"]["name"]: m.values[0]["spec"] for m in MANIFESTS if m.values[0]["kind"] == "Deployment"
    }

    for name in ("daemon", "code"):
        assert (specs[name]["replicas"], specs[name]["strategy"]) == (1, {"type": "Recreate"})


def started() -> Iterator[Any]:
    """Every command of every kit."""
    for part, template in pods():
        yield pytest.param(part, template["spec"]["containers"][0]["command"], id=f"kubernetes-{part}")
    for name, service in COMPOSE["services"].items():
        if name != "db":
            yield pytest.param(name, service["command"], id=f"compose-{name}")
    for unit in UNITS:
        (line,) = re.findall(r"^ExecStart=/opt/databuild/bin/(.*)", unit.read_text(), re.MULTILINE)
        yield pytest.param(unit.stem.removeprefix("databuild-"), shlex.split(line), id=unit.stem)
    (default,) = re.findall(r"^CMD (.*)", DOCKERFILE, re.MULTILINE)
    yield pytest.param("code", json.loads(default), id="Dockerfile")


def without_values(command: Sequence[str]) -> tuple[str, ...]:
    """The program, its words and its options."""
    first = next(n for n, word in enumerate(command) if word.startswith("-"))
    return (*command[:first], *(word for word in command[first:] if word.startswith("-")))


@pytest.mark.parametrize(("part", "command"), list(started()))
def test_a_kit_starts_a_part_as_the_tests_of_several_hosts_do(part: str, command: list[str]) -> None:
    assert without_values(command) == (BESIDE_SERVICES.get(part) or without_values(COMMANDS[part]))

    if command[0] == "databuild":
        assert why_not_typed(shlex.join(command[1:])) is None


def probes() -> Iterator[Any]:
    for part, template in pods():
        container = template["spec"]["containers"][0]
        yield from (
            pytest.param(probe, id=f"{part}-{name}") for name, probe in container.items() if name.endswith("Probe")
        )
    for name in ("dagsterWebserver", "dagsterDaemon"):
        yield from (
            pytest.param(probe, id=f"{name}-{key}") for key, probe in VALUES[name].items() if key.endswith("Probe")
        )
    for name, service in COMPOSE["services"].items():
        if name != "db":
            yield pytest.param(service["healthcheck"], id=f"compose-{name}")


@pytest.mark.parametrize("probe", list(probes()))
def test_a_probe_asks_what_can_be_asked(probe: dict[str, Any]) -> None:
    words = probe.get("exec", {}).get("command") or probe.get("test", [])
    asked = (
        probe.get("grpc", {}).get("service") or probe.get("httpGet", {}).get("path") or [w for w in words if w != "CMD"]
    )

    if asked[0] == "python":
        asked = re.sub(r".*3000|'\)$", "", asked[-1])
    assert any(asked == known or (isinstance(asked, list) and asked[: len(known)] == known) for known in PROBES)


def variables() -> set[str]:
    """The names of all variables of the environment that a kit sets."""
    named = re.findall(r"^\s*(?:ENV )?([A-Z_]+)=", DOCKERFILE, re.MULTILINE)
    named += re.findall(r"^([A-Za-z_]+)=", (DEPLOY / "systemd" / "databuild.env").read_text(), re.MULTILINE)
    for service in COMPOSE["services"].values():
        named += service["environment"]
    for _, template in pods():
        named += [variable["name"] for variable in template["spec"]["containers"][0].get("env", [])]
    secrets = [m.values[0] for m in MANIFESTS if m.values[0]["kind"] == "Secret"]
    return {
        *named,
        *(key for secret in secrets for key in secret["stringData"]),
        *(e["name"] for e in VALUES["dagsterWebserver"]["env"]),
    }


def test_somebody_reads_each_variable_that_a_kit_sets() -> None:
    folders = (ROOT / "databuild_dagster", Path(dagster.__file__).parent)
    sources = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    settings = "".join(text for text, _ in settings_of_kits().values())

    unread = {name for name in variables() if not re.search(rf"\b{name}\b", sources + settings)}

    assert unread <= READ_ELSEWHERE.keys() <= variables()
    assert "SPARK_URL" in (ROOT / "docs" / "how-to" / "deploy.md").read_text()


def of_chart() -> str:
    """The dagster.yaml that Dagster's chart makes of our values, as far as they decide it."""

    def snake(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key): snake(each) for key, each in value.items()}

    daemon, server = VALUES["dagsterDaemon"], VALUES["postgresql"]
    launcher = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
    database = {
        "postgres_db": {
            "username": server["postgresqlUsername"],
            "password": {"env": "DAGSTER_PG_PASSWORD"},
            "hostname": server["postgresqlHost"],
            "db_name": server["postgresqlDatabase"],
            "port": 5432,
            "params": server["postgresqlParams"],
            "scheme": server["postgresqlScheme"],
        }
    }
    pod = launcher["runK8sConfig"]["podSpecConfig"]
    made = {
        "run_coordinator": daemon["runCoordinator"]["config"]["customRunCoordinator"],
        "run_launcher": {
            "module": "dagster_k8s",
            "class": VALUES["runLauncher"]["type"],
            "config": {
                "instance_config_map": "databuild-dagster-instance",
                "service_account_name": "databuild-dagster",
                "env_secrets": [secret["name"] for secret in launcher["envSecrets"]],
                "volumes": launcher["volumes"],
                "volume_mounts": launcher["volumeMounts"],
                "resources": launcher["resources"],
                "security_context": launcher["securityContext"],
                "run_k8s_config": {"pod_spec_config": pod},
            },
        },
        **{
            f"{part}_storage": {
                "module": f"dagster_postgres.{module}",
                "class": f"Postgres{name}Storage",
                "config": database,
            }
            for part, module, name in (
                ("run", "run_storage", "Run"),
                ("event_log", "event_log", "EventLog"),
                ("schedule", "schedule_storage", "Schedule"),
            )
        },
        "run_monitoring": snake(daemon["runMonitoring"]),
        "sensors": snake(daemon["sensors"]),
        "retention": {"sensor": snake(VALUES["retention"]["sensor"])},
        "telemetry": VALUES["telemetry"],
        **VALUES["additionalInstanceConfig"],
    }
    return yaml.safe_dump(made)


def settings_of_kits() -> dict[str, tuple[str, str]]:
    """By kit: the text of its dagster.yaml, and of its workspace.yaml."""
    in_folder = {
        folder: tuple((folder / name).read_text() for name in ("dagster.yaml", "workspace.yaml"))
        for folder in (DEPLOY, DEPLOY / "systemd")
    }
    kubernetes = (CONFIG_MAP["data"]["dagster.yaml"], CONFIG_MAP["data"]["workspace.yaml"])
    return {
        "compose": in_folder[DEPLOY],
        "systemd": in_folder[DEPLOY / "systemd"],
        "kubernetes": kubernetes,
        "helm": (of_chart(), kubernetes[1]),
    }  # type: ignore[return-value]


@pytest.mark.parametrize("kit", settings_of_kits())
def test_dagster_takes_the_settings_of_a_kit(kit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = settings_of_kits()[kit]
    (tmp_path / "dagster.yaml").write_text(text)
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", "postgresql+psycopg2://dagster:secret@db/dagster")
    monkeypatch.setenv("DAGSTER_PG_PASSWORD", "secret")
    if kit in ("kubernetes", "helm"):
        pytest.importorskip("dagster_k8s")

    settings, _ = dagster_instance_config(str(tmp_path))
    reference = InstanceRef.from_dir(str(tmp_path))

    for part in (
        reference.run_launcher_data,
        reference.run_coordinator_data,
        reference.run_storage_data,
        reference.compute_logs_data,
    ):
        assert_configured(part)
    assert reference.run_coordinator_data.class_name == "DatabuildRunCoordinator"
    assert settings["sensors"] == {"use_threads": True, "num_workers": 8}
    assert settings["run_monitoring"] == {"enabled": True, "start_timeout_seconds": 300}
    assert settings["retention"] == {"sensor": {"purge_after_days": {"skipped": 1}}}


def assert_configured(part: ConfigurableClassData | None) -> None:
    """Dagster checks the settings of a class when it makes an object, which a launcher of Kubernetes can only do there."""
    assert part is not None
    module = __import__(part.module_name, fromlist=[part.class_name])
    result = process_config(getattr(module, part.class_name).config_type(), part.config_dict)
    assert result.success, result.errors


@pytest.mark.parametrize("kit", settings_of_kits())
def test_dagster_finds_the_code_server_of_a_kit(kit: str, tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").write_text(settings_of_kits()[kit][1])

    (origin,) = location_origins_from_yaml_paths([str(tmp_path / "workspace.yaml")])

    host = {"systemd": "127.0.0.1"}.get(kit, "code")
    assert (origin.host, origin.port, origin.location_name) == (host, 4000, "shop")  # type: ignore[attr-defined]
    assert kit == "systemd" or host in COMPOSE["services"]


@pytest.mark.long("a PostgreSQL, in which Dagster makes its tables")
def test_the_log_is_in_the_database_that_the_kits_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres_server().fresh_url().replace("+psycopg:", "+psycopg2:")
    monkeypatch.delenv("DATABUILD_DB_URL", raising=False)
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", url)
    (tmp_path / "dagster.yaml").write_text(CONFIG_MAP["data"]["dagster.yaml"])

    with DagsterInstance.from_config(str(tmp_path)) as instance:
        assert store_url(instance) == url
        assert type(instance.run_coordinator).__name__ == "DatabuildRunCoordinator"
        assert instance.run_monitoring_enabled


KUBECONFIG = """
{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: u, user: {}}]}
"""


@pytest.mark.parametrize("kit", ["kubernetes", "helm"])
def test_a_run_worker_in_kubernetes_is_confined_as_the_other_pods_are(kit: str, tmp_path: Path) -> None:
    pytest.importorskip("dagster_k8s")
    from dagster_k8s import K8sRunLauncher
    from dagster_k8s.container_context import K8sContainerContext
    from dagster_k8s.job import construct_dagster_k8s_job
    from kubernetes.client import ApiClient

    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    outside = {"load_incluster_config": False, "kubeconfig_file": str(tmp_path / "kubeconfig")}
    given = {**yaml.safe_load(settings_of_kits()[kit][0])["run_launcher"]["config"], **outside}
    config = process_config(K8sRunLauncher.config_type(), given).value
    launcher = K8sRunLauncher.from_config_value(None, config)

    context = K8sContainerContext.create_for_run(DagsterRun("__ASSET_JOB"), launcher, include_run_tags=False)
    job = construct_dagster_k8s_job(
        context.get_k8s_job_config("registry.example/shop:1", launcher),
        ["dagster", "api", "execute_run", "{}"],
        "dagster-run-1",
        user_defined_k8s_config=context.run_k8s_config,
    )
    template = ApiClient().sanitize_for_serialization(job)["spec"]["template"]

    check(template, "core.v1.PodTemplateSpec")
    assert_confined(template["spec"])


def test_the_parts_of_the_charts_values_are_those_of_kubernetes() -> None:
    launcher = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
    (deployment,) = VALUES["dagster-user-deployments"]["deployments"]
    servers = (deployment, VALUES["dagsterWebserver"], VALUES["dagsterDaemon"])

    for values in (*servers, launcher):
        check(values["securityContext"], "core.v1.SecurityContext")
        check(values["resources"], "core.v1.ResourceRequirements")
        for kind, items in (("Volume", "volumes"), ("VolumeMount", "volumeMounts"), ("SecretEnvSource", "envSecrets")):
            for item in values[items]:
                check(item, f"core.v1.{kind}")
    for values in servers:
        check(values["podSecurityContext"], "core.v1.PodSecurityContext")
        for probe in (value for name, value in values.items() if name.endswith("Probe")):
            check({key: value for key, value in probe.items() if key != "enabled"}, "core.v1.Probe")


def test_compose_takes_its_file() -> None:
    jsonschema.validate(COMPOSE, json.loads((SUPPORT / "compose.json").read_text()))

    for service in COMPOSE["services"].values():
        assert set(service.get("depends_on", {})) <= COMPOSE["services"].keys()
    mounted = {mount.split(":")[0] for service in COMPOSE["services"].values() for mount in service["volumes"]}
    assert {name for name in mounted if name[0] not in "./"} == COMPOSE["volumes"].keys()
    assert all("/tmp" in service["volumes"] for name, service in COMPOSE["services"].items() if name != "db")
    assert all((DEPLOY / name).is_file() for name in mounted if name.startswith("./"))


def test_what_dagsters_chart_starts_as_its_web_server_has_our_pages(tmp_path: Path) -> None:
    (line,) = re.findall(r"^RUN mkdir /opt/databuild && (.*)$", DOCKERFILE, re.MULTILINE)
    (tmp_path / "databuild").write_text('#!/bin/sh\necho "$0" "$@"\n')
    (tmp_path / "databuild").chmod(0o755)
    subprocess.run(["sh", "-c", line.replace("/opt/databuild", str(tmp_path))], check=True)

    ran = subprocess.run(
        ["/bin/sh", "-c", "dagster-webserver -h 0.0.0.0 -p 3000 -w /dagster-workspace/workspace.yaml"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.split()[1:] == [
        "webserver",
        "-h",
        "0.0.0.0",
        "-p",
        "3000",
        "-w",
        "/dagster-workspace/workspace.yaml",
    ]
    assert "ENV PATH=/opt/databuild:$PATH" in DOCKERFILE


def test_the_image_runs_as_the_user_of_the_pods() -> None:
    instructions = re.findall(r"^([A-Z]+) (.*)$", re.sub(r"\\\n", "", DOCKERFILE), re.MULTILINE)
    users = [value for name, value in instructions if name == "USER"]

    assert users == ["1000"]
    assert ("RUN", "useradd --uid 1000 databuild && install -d -o databuild /opt/dagster/dagster_home") in instructions
    assert {name for name, _ in instructions} == {"FROM", "ARG", "RUN", "WORKDIR", "COPY", "ENV", "USER", "CMD"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_a_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("this machine has no systemd-analyze")
    # It looks for the programs.
    programs = Path(sys.executable).parent
    for other in UNITS:
        (tmp_path / other.name).write_text(other.read_text().replace("/opt/databuild/bin", str(programs)))

    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / unit.name)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, str(tmp_path) in done.stderr) == (0, False), done.stderr


@pytest.mark.long("a code server, a process of its own")
def test_the_code_server_of_the_kits_answers_its_probe(tmp_path: Path) -> None:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    assert databuild(tmp_path, None, "init", "shop").code == 0
    port = free_port()
    (deployment,) = [template for part, template in pods() if part == "code"]
    container = deployment["spec"]["containers"][0]
    command = [{"0.0.0.0": "127.0.0.1", "4000": str(port)}.get(word, word) for word in container["command"]]
    (tmp_path / "home").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=tmp_path / "shop",
        env={"DAGSTER_HOME": str(tmp_path / "home"), "PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            request = health_pb2.HealthCheckRequest(service=container["startupProbe"]["grpc"]["service"])
            answer = health_pb2_grpc.HealthStub(channel).Check(request, wait_for_ready=True, timeout=600)

        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        process.terminate()
        process.wait()
