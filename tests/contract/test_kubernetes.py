"""The Kubernetes files are valid, confined, without a shared disk, and name only what exists."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from server.config import load
from server.services.readiness import CHECK_SECONDS, COMMAND_SECONDS
from tests.factories.kustomization import Document, built
from wardround.cli.main import build

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
FOLDERS = [KUBERNETES / "base", *sorted((KUBERNETES / "overlays").iterdir())]
VERSION = "1.37"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
TAG = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def _named(documents: list[Document], kind: str) -> dict[str, Document]:
    return {one["metadata"]["name"]: one for one in documents if one["kind"] == kind}


def _pods(documents: list[Document]) -> dict[str, Document]:
    """Pod specifications by the name of what makes them."""
    makers = {name: one for kind in ("Deployment", "Job") for name, one in _named(documents, kind).items()}
    return {name: one["spec"]["template"]["spec"] for name, one in makers.items()}


def _containers(pod: Document) -> list[Document]:
    return [*pod.get("initContainers", []), *pod["containers"]]


BASE = built(KUBERNETES / "base")
EXAMPLE = built(KUBERNETES / "overlays" / "example")
OPENSHIFT = built(KUBERNETES / "overlays" / "openshift")
PODS = _pods(EXAMPLE)
CONTAINERS = {f"{name}: {one['name']}": one for name, pod in PODS.items() for one in _containers(pod)}
DOCUMENTS = [
    (f"{folder.name}: {one['kind']} {one['metadata']['name']}", one) for folder in FOLDERS for one in built(folder)
]


@pytest.mark.parametrize("document", [one for _, one in DOCUMENTS], ids=[name for name, _ in DOCUMENTS])
def test_every_document_is_valid(document: Document) -> None:
    kubernetes_validate.validate(document, VERSION, strict=True)


def test_a_misspelt_field_would_be_noticed() -> None:
    (broken,) = [
        one
        for one in built(KUBERNETES / "base")
        if one["metadata"]["name"] == "wardround-worker" and one["kind"] == "Deployment"
    ]
    broken["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSION, strict=True)


def test_the_parts_are_there_twice_and_may_not_all_go_at_once() -> None:
    deployments = _named(EXAMPLE, "Deployment")
    assert set(deployments) == {"wardround-api", "wardround-worker"}
    for name, one in deployments.items():
        assert one["spec"]["replicas"] >= 2
        assert one["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        labels = one["spec"]["template"]["metadata"]["labels"]
        budget = _named(EXAMPLE, "PodDisruptionBudget")[name]["spec"]
        assert budget["minAvailable"] >= 1
        assert one["spec"]["selector"]["matchLabels"] == budget["selector"]["matchLabels"] == labels
        (spread,) = one["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"] == labels
    assert set(_named(EXAMPLE, "Job")) == {"wardround-migrate"}


@pytest.mark.parametrize("name", PODS)
def test_nothing_may_more_than_it_needs(name: str) -> None:
    pod = PODS[name]
    user = re.findall(r"--uid (\d+) ", DOCKERFILE)[0]
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert str(context["runAsUser"]) == str(context["fsGroup"]) == user
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    for container in _containers(pod):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", PODS)
def test_no_disk_is_shared_and_everything_written_has_a_place(name: str) -> None:
    volumes = {one["name"]: one for one in PODS[name]["volumes"]}
    assert all(set(one) - {"name"} <= {"emptyDir", "secret"} for one in volumes.values())
    for container in _containers(PODS[name]):
        mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
        assert {one["name"] for one in mounts.values()} <= set(volumes)
        writable = {path for path, one in mounts.items() if not one.get("readOnly")}
        assert "/var/lib/wardround" in writable
        assert all("emptyDir" in volumes[mounts[path]["name"]] for path in writable)


@pytest.mark.parametrize("documents", [BASE, EXAMPLE], ids=["base", "example"])
def test_every_setting_is_one_with_a_valid_value(documents: list[Document], tmp_path: Path) -> None:
    environment = dict(_named(documents, "ConfigMap")["wardround-settings"]["data"])
    files = {name: path for name, path in environment.items() if name.endswith("_FILE")}
    secrets = _named(EXAMPLE, "Secret")["wardround"]["data"]
    for name, path in files.items():
        folder, _, key = path.rpartition("/")
        assert key in secrets
        assert f"secrets/{key}" in OPERATIONS
        mounted = [m["mountPath"] for one in CONTAINERS.values() for m in one["volumeMounts"] if m["name"] == "secrets"]
        assert {folder} == set(mounted)
        (tmp_path / key).write_text("secret")
        environment[name] = str(tmp_path / key)
    chosen = load(environment)
    assert chosen.database().drivername == "postgresql+psycopg"
    assert chosen.worker is False
    assert str(chosen.home) == "/var/lib/wardround"
    assert environment["WARDROUND_BLOBS"].startswith("s3://")


def test_the_image_holds_what_reads_the_object_store() -> None:
    extra = re.findall(r"^ARG EXTRA=(\w+)$", DOCKERFILE, re.M)[0]
    for one in (extra, "traces"):
        assert re.search(r"^obstore==", (ROOT / "deploy" / "locks" / f"{one}.txt").read_text(), re.M)


@pytest.mark.parametrize("name", CONTAINERS)
def test_images_are_the_one_that_is_built(name: str) -> None:
    of_base = {one["image"] for pod in _pods(BASE).values() for one in _containers(pod)}
    assert of_base == {COMPOSE["services"]["api"]["image"]} == {f"wardround-server:{TAG}"}
    assert CONTAINERS[name]["image"].endswith(f"/wardround-server:{TAG}")


@pytest.mark.parametrize("name", PODS)
def test_commands_exist(name: str) -> None:
    (container,) = PODS[name]["containers"]
    commands = [container["command"]]
    commands += [
        probe["exec"]["command"] for key, probe in container.items() if key.endswith("Probe") and "exec" in probe
    ]
    for words in commands:
        app = build()
        assert words[0] == "wardround"
        assert CliRunner().invoke(app, [*words[1:], "--help"]).exit_code == 0


def test_probes_ask_what_answers_and_a_database_that_is_away_kills_nobody() -> None:
    (api,) = PODS["wardround-api"]["containers"]
    assert api["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert api["readinessProbe"]["httpGet"]["path"] == api["startupProbe"]["httpGet"]["path"] == "/readyz"
    for probe in ("readinessProbe", "startupProbe"):
        assert api[probe]["timeoutSeconds"] >= 2 * CHECK_SECONDS
    settings = _named(EXAMPLE, "ConfigMap")["wardround-settings"]["data"]
    ports = {one["name"]: str(one["containerPort"]) for one in api["ports"]}
    assert ports == {"http": settings["WARDROUND_PORT"], "metrics": settings["WARDROUND_METRICS_PORT"]}
    (worker,) = PODS["wardround-worker"]["containers"]
    assert worker["readinessProbe"]["timeoutSeconds"] >= 1.5 * COMMAND_SECONDS
    assert worker["livenessProbe"] == {"tcpSocket": {"port": "metrics"}, "periodSeconds": 20, "timeoutSeconds": 5}
    for pod in ("wardround-api", "wardround-worker"):
        exposed = " ".join(re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.M)).split()
        assert {str(one["containerPort"]) for one in PODS[pod]["containers"][0]["ports"]} <= set(exposed)


def test_prometheus_is_told_where_to_ask() -> None:
    settings = _named(EXAMPLE, "ConfigMap")["wardround-settings"]["data"]
    for one in _named(EXAMPLE, "Deployment").values():
        told = one["spec"]["template"]["metadata"]["annotations"]
        assert told["prometheus.io/scrape"] == "true"
        assert told["prometheus.io/port"] == settings["WARDROUND_METRICS_PORT"]
        assert told["prometheus.io/path"] == "/metrics"


def test_services_and_the_way_in_find_the_pods() -> None:
    labels = {
        name: one["spec"]["template"]["metadata"]["labels"] for name, one in _named(EXAMPLE, "Deployment").items()
    }
    services = _named(EXAMPLE, "Service")
    assert services["wardround-api"]["spec"]["selector"] == labels["wardround-api"]
    asked = services["wardround-metrics"]["spec"]["selector"].items()
    assert all(asked <= found.items() for found in labels.values())
    (rule,) = _named(EXAMPLE, "Ingress")["wardround"]["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert backend["port"]["name"] in {port["name"] for port in services[backend["name"]]["spec"]["ports"]}
    settings = _named(EXAMPLE, "ConfigMap")["wardround-settings"]["data"]
    assert settings["WARDROUND_ORIGIN"] == f"https://{rule['host']}"


def test_only_what_is_named_reaches_a_pod() -> None:
    policies = _named(EXAMPLE, "NetworkPolicy")
    everything = policies["wardround"]["spec"]
    assert set(everything["policyTypes"]) == {"Ingress", "Egress"}
    labels = [
        one["spec"]["template"]["metadata"]["labels"]
        for one in (*_named(EXAMPLE, "Deployment").values(), *_named(EXAMPLE, "Job").values())
    ]
    assert all(everything["podSelector"]["matchLabels"].items() <= found.items() for found in labels)
    let_in = {
        port["port"] for one in policies.values() for rule in one["spec"].get("ingress", []) for port in rule["ports"]
    }
    assert let_in == {8000, 9464}
    assert all(rule["from"] for one in policies.values() for rule in one["spec"].get("ingress", []))


def test_secrets_are_no_part_of_the_sources() -> None:
    folder = KUBERNETES / "overlays" / "example" / "secrets"
    assert [path.name for path in folder.iterdir()] == [".gitignore"]
    assert (folder / ".gitignore").read_text().split() == ["*", "!.gitignore"]
    for secret in _named(EXAMPLE, "Secret").values():
        assert all(f"secrets/{key}" in OPERATIONS for key in secret["data"])


def test_openshift_chooses_the_user_and_all_else_is_as_in_the_example() -> None:
    for name, pod in _pods(OPENSHIFT).items():
        context = pod.pop("securityContext")
        assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert pod == {key: value for key, value in PODS[name].items() if key != "securityContext"}
    kinds = {"Ingress", "NetworkPolicy", "Deployment", "Job"}
    assert [one for one in OPENSHIFT if one["kind"] not in kinds] == [
        one for one in EXAMPLE if one["kind"] not in kinds
    ]
    example, openshift = _named(EXAMPLE, "NetworkPolicy"), _named(OPENSHIFT, "NetworkPolicy")
    for name, policy in openshift.items():
        assert policy["spec"]["podSelector"] == example[name]["spec"]["podSelector"]
        let_in = [rule["ports"] for rule in policy["spec"]["ingress"]]
        assert let_in == [rule["ports"] for rule in example[name]["spec"]["ingress"]]


def test_any_user_of_group_0_may_write_where_the_image_writes() -> None:
    home = _named(EXAMPLE, "ConfigMap")["wardround-settings"]["data"]["WARDROUND_HOME"]
    assert f"chgrp 0 {home} && chmod g=u {home}" in re.sub(r"\s+", " ", DOCKERFILE.replace("\\\n", ""))
    assert f"HOME={home}" in DOCKERFILE


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("overlay", ["example", "openshift"])
def test_kubectl_prints_the_same(tmp_path: Path, overlay: str) -> None:
    copied = shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    for name in ("database_password", "blobs_access_key_id", "blobs_secret_access_key", "coordinator.key"):
        (copied / "overlays" / "example" / "secrets" / name).write_text("secret")
    command = ["kubectl", "kustomize", str(copied / "overlays" / overlay)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def ordered(documents: list[Document]) -> list[Document]:
        return sorted(documents, key=lambda one: (one["kind"], one["metadata"]["name"]))

    assert ordered(list(yaml.safe_load_all(printed))) == ordered(built(KUBERNETES / "overlays" / overlay))
