"""MLflow's address, and a study on a real MLflow server.

The server is the one of the environment `.mlflow-venv` (`make .mlflow-venv/.installed`), or of the program that
MLFLOW_PROGRAM names.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from client_sdk.errors import ConfigurationError, WardroundError
from tests.factories.live_coordinator import Live, live
from tests.factories.mlflow_process import PROGRAM, MlflowProcess, outside, serving
from tests.factories.settings import settings
from tests.factories.tracking import release
from wardround.tracking.errors import TrackingRefused
from wardround.tracking.mlflow_server import MlflowServer, require_server_address

ROOT = Path(__file__).parents[3]
SETTINGS = settings(max_steps=2, schedule={"min_clients": 2})
needs_client = pytest.mark.skipif(find_spec("mlflow") is None, reason="needs the extra mlflow")
# A test starts the command several times, and each start imports MLflow.
patient = pytest.mark.timeout(900)
needs_mlflow = pytest.mark.skipif(
    find_spec("mlflow") is None or not PROGRAM.exists(),
    reason=f"needs the extra mlflow, and a server: make .mlflow-venv/.installed, or MLFLOW_PROGRAM ({PROGRAM})",
)
# Runs the command and refuses every connection but those to the two servers, and every look-up of another name.
ONLY_TO = """
import socket, sys
allowed, connect, look_up = {int(port) for port in sys.argv[1].split(",")}, socket.socket.connect, socket.getaddrinfo
def checked_connect(self, address):
    if self.family != socket.AF_UNIX and (address[0] not in ("127.0.0.1", "::1") or address[1] not in allowed):
        sys.stderr.write(f"connection to {address}\\n")
        raise SystemExit(99)
    return connect(self, address)
def checked_look_up(host, *arguments, **keywords):
    if host not in ("127.0.0.1", "::1", "localhost"):
        sys.stderr.write(f"look-up of {host}\\n")
    return look_up(host, *arguments, **keywords)
socket.socket.connect = socket.socket.connect_ex = checked_connect
socket.getaddrinfo = checked_look_up
from wardround.cli.main import main
sys.argv = ["wardround", *sys.argv[2:]]
main()
"""


@pytest.mark.parametrize("address", ["http://127.0.0.1:5000", "https://mlflow.example.org/team/"])
def test_an_address_of_a_server_is_taken(address: str) -> None:
    assert require_server_address(address) == address.rstrip("/")


@pytest.mark.parametrize(
    "address",
    [
        *(
            "mlruns",
            "file:///tmp/mlruns",
            "sqlite:///mlflow.db",
            "databricks",
            "127.0.0.1:5000",
            "http://",
            "http://[::1",
        ),
        *("http://host:70000", "http://host:0", "http://host:port", "ftp://host", "", "http://ho st", "http://hést"),
        *("http://host/?a=b", "http://host/#a"),
    ],
)
def test_another_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"http://127\.0\.0\.1:5000"):
        require_server_address(address)


def test_a_login_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="MLFLOW_TRACKING_PASSWORD") as error:
        require_server_address("http://anna:geheim@127.0.0.1:5000")
    assert "geheim" not in str(error.value)


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """The address of a server that gives this answer to every request."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@needs_client
@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, "2.8.1", "version 2.9 or later"),
        (200, "1.30.0", "version 2.9 or later"),
        (200, "<html>Log in</html>", "version 2.9 or later"),
        (404, "", "version 2.9 or later"),
        (401, "geheim", "MLFLOW_TRACKING_TOKEN"),
        (403, "geheim", "does not allow this login"),
        (503, "geheim", "answers with an error|does not answer"),
    ],
)
def test_another_server_or_a_wrong_login_is_one_sentence(
    status: int, body: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "geheim")
    with answering(status, body) as address, pytest.raises(WardroundError, match=words) as error:
        MlflowServer(address, "wardround")
    assert ("geheim" in str(error.value), "\n" in str(error.value)) == (False, False)


@needs_client
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("MLFLOW_TRACKING_TOKEN", "geheim\nnis", "a character that no header may hold"),
        ("MLFLOW_TRACKING_TOKEN", "geheim€", "a character that no header may hold"),
        ("MLFLOW_HTTP_REQUEST_TIMEOUT", "soon", "MLFLOW_HTTP_REQUEST_TIMEOUT"),
        ("MLFLOW_TRACKING_SERVER_CERT_PATH", "/nowhere.pem", "MLFLOW_TRACKING_SERVER_CERT_PATH"),
    ],
)
def test_a_wrong_variable_of_mlflow_is_one_sentence(
    name: str, text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    with answering(200, "3.17.2") as address, pytest.raises(TrackingRefused, match=words) as error:
        MlflowServer(address.replace("http:", "https:") if name.endswith("CERT_PATH") else address, "wardround")
    assert ("geheim" in str(error.value), "\n" in str(error.value)) == (False, False)


@needs_client
@pytest.mark.slow
def test_a_damaged_file_of_logins_is_named_and_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow" / "credentials").write_text("mlflow_tracking_password = geheim\n")
    with pytest.raises(TrackingRefused, match="credentials is not in MLflow's form") as error:
        MlflowServer("http://127.0.0.1:9", "wardround")
    assert error.value.__suppress_context__


@needs_client
@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.9.0", "3.17.2", "10.0.0rc1"])
def test_a_later_server_is_taken(version: str) -> None:
    with answering(200, version) as address:
        MlflowServer(address, "wardround")


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowProcess]:
    with serving(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "coordinator") as running:
        yield running


_FOLLOWERS: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def no_follower_stays() -> Iterator[None]:
    """A follower waits for ever. One that a failed test leaves behind is killed."""
    yield
    while _FOLLOWERS:
        with _FOLLOWERS.pop() as process:
            process.kill()


def begin(here: Live, server: MlflowProcess, study: str, *more: str, **environment: str) -> subprocess.Popen[str]:
    """`wardround study track` in a process of its own, which reaches the two servers and no others."""
    ports = f"{server.port},{here.url.rpartition(':')[2]}"
    command = [sys.executable, "-c", ONLY_TO, ports, "study", "track", study, "--mlflow", server.url, *more]
    variables = {"WARDROUND_SERVER": here.url, "WARDROUND_API_KEY": here.viewer_key, "HOME": str(here.home)}
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        command,
        env=outside() | paths | variables | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _FOLLOWERS.append(process)
    return process


def track(here: Live, server: MlflowProcess, study: str, *more: str, code: int = 0, **environment: str) -> str:
    """What it prints: on standard output if it ends well, else its sentence."""
    process = begin(here, server, study, *more, **environment)
    output, errors = process.communicate(timeout=280)
    assert process.returncode == code, errors
    # No warning and no line of MLflow stands beside it.
    assert len(errors.splitlines()) == (0 if code == 0 else 1), errors
    return output if code == 0 else errors


def ask(server: MlflowProcess, path: str, **body: Any) -> Any:
    answer = httpx.post(f"{server.url}/api/2.0/mlflow/{path}", json=body, timeout=30, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json()


def run_of(server: MlflowProcess, study: str) -> dict[str, Any]:
    """The only run of a study in the default experiment."""
    experiments = ask(server, "experiments/search", max_results=100, filter="name = 'wardround'")["experiments"]
    wanted = f"tags.`wardround.study` = '{study}'"
    (run,) = ask(server, "runs/search", experiment_ids=[experiments[0]["experiment_id"]], filter=wanted)["runs"]
    return run


def history(server: MlflowProcess, run: dict[str, Any], key: str) -> list[tuple[int, float]]:
    query = {"run_id": run["info"]["run_id"], "metric_key": key}
    found = httpx.get(f"{server.url}/api/2.0/mlflow/metrics/get-history", params=query, timeout=30, trust_env=False)
    return [(point["step"], point["value"]) for point in found.json()["metrics"]]


def versions(server: MlflowProcess, name: str) -> list[dict[str, Any]]:
    query = {"filter": f"name = '{name}'"}
    found = httpx.get(f"{server.url}/api/2.0/mlflow/model-versions/search", params=query, timeout=30, trust_env=False)
    return found.json().get("model_versions", [])


def measured(here: Live, study: str, round_number: int) -> None:
    body = {"evaluation_set": "held-out", "values": {"auroc": 0.5 + round_number / 10}}
    assert here.operator("PUT", f"/v1/studies/{study}/models/{round_number}/metrics", json=body).status_code < 300


def tags_of(entries: list[dict[str, str]]) -> dict[str, str]:
    return {entry["key"]: entry["value"] for entry in entries}


@needs_mlflow
@patient
@pytest.mark.slow
def test_a_study_arrives_whole_and_once_on_a_real_server(here: Live, mlflow: MlflowProcess) -> None:
    hospitals = here.running("sepsis", "mercy", "bay", settings=SETTINGS)
    release(here, hospitals, 1)
    measured(here, "sepsis", 1)
    first = json.loads(track(here, mlflow, "sepsis", "--once", "--json"))
    again = json.loads(track(here, mlflow, "sepsis", "--once", "--json"))
    assert (again["run_id"], again["new_points"], again["model_version"]) == (first["run_id"], 0, "1")
    release(here, hospitals, 2)
    measured(here, "sepsis", 2)
    assert "model: version 2 of sepsis" in track(here, mlflow, "sepsis")
    run = run_of(mlflow, "sepsis")
    assert (run["info"]["run_id"], run["info"]["status"]) == (first["run_id"], "FINISHED")
    assert tags_of(run["data"]["params"])["privacy.max_steps"] == "2"
    assert history(mlflow, run, "auroc") == [(1, 0.6), (2, 0.7)]
    rounds = here.operator("GET", "/v1/studies/sepsis/rounds").json()["rounds"]
    spent = [(view["round"], view["spent"][0]["spent"]) for view in rounds]
    assert history(mlflow, run, "epsilon_spent/instance/classical") == spent
    assert sorted(version["version"] for version in versions(mlflow, "sepsis")) == ["1", "2"]
    newest = next(version for version in versions(mlflow, "sepsis") if version["version"] == "2")
    folder = f"{mlflow.url}/api/2.0/mlflow-artifacts/artifacts/{newest['source'].removeprefix('mlflow-artifacts:/')}"
    model = httpx.get(f"{folder}/model.safetensors", timeout=30, trust_env=False).content
    assert model == here.operator("GET", "/v1/studies/sepsis/models/2").content
    certificate = httpx.get(f"{folder}/certificate.json", timeout=30, trust_env=False).json()["certificate"]
    tags = tags_of(newest["tags"])
    assert tags["wardround.model_sha256"] == hashlib.sha256(model).hexdigest()
    assert (tags["wardround.round"], tags["wardround.ledger_head"]) == ("2", certificate["ledger"]["sha256"])


@needs_mlflow
@patient
@pytest.mark.slow
def test_an_outage_and_a_kill_lose_nothing(here: Live, mlflow: MlflowProcess) -> None:
    hospitals = here.running("outage", "mercy", "bay", settings=SETTINGS)
    following = begin(here, mlflow, "outage", "--every", "1")
    release(here, hospitals, 1)
    assert following.stdout is not None
    assert "new metric values" in following.stdout.readline()
    mlflow.stop()
    release(here, hospitals, 2)
    assert following.stderr is not None
    assert "does not answer" in following.stderr.readline()
    following.kill()
    following.communicate()
    following = begin(here, mlflow, "outage", "--every", "1")
    assert "does not answer" in following.communicate(timeout=280)[1]
    assert following.returncode == 5
    mlflow.start()
    track(here, mlflow, "outage")
    run = run_of(mlflow, "outage")
    assert [step for step, _ in history(mlflow, run, "epsilon_spent/instance/classical")] == [1, 2]
    assert [version["version"] for version in versions(mlflow, "outage")] == ["1"]


@needs_mlflow
@patient
@pytest.mark.slow
def test_a_follower_waits_until_the_server_answers_again(here: Live, mlflow: MlflowProcess) -> None:
    hospitals = here.running("waiting", "mercy", "bay", settings=SETTINGS)
    following = begin(here, mlflow, "waiting", "--every", "1")
    release(here, hospitals, 1)
    assert following.stdout is not None
    assert "new metric values" in following.stdout.readline()
    mlflow.stop()
    release(here, hospitals, 2)
    assert following.stderr is not None
    assert "does not answer" in following.stderr.readline()
    mlflow.start()
    output, errors = following.communicate(timeout=280)
    assert (following.returncode, errors) == (0, "the server answers again\n")
    assert "model: version 1 of waiting" in output


@needs_mlflow
@patient
@pytest.mark.slow
def test_what_the_server_refuses_is_one_sentence(here: Live, mlflow: MlflowProcess) -> None:
    hospitals = here.running("refused", "mercy", "bay", settings=SETTINGS)
    release(here, hospitals, 1)
    ask(mlflow, "registered-models/create", name="taken")
    ask(mlflow, "registered-models/create", name="prompt", tags=[{"key": "mlflow.prompt.is_prompt", "value": "true"}])
    for name in ("taken", "prompt"):
        said = track(here, mlflow, "refused", "--once", "--registered-model", name, code=1)
        assert f"the name {name} is taken" in said
    deleted = ask(mlflow, "experiments/create", name="deleted")
    ask(mlflow, "experiments/delete", experiment_id=deleted["experiment_id"])
    assert "--experiment" in track(here, mlflow, "refused", "--once", "--experiment", "deleted", code=1)
    ask(mlflow, "experiments/create", name="local", artifact_location="/tmp/of-the-server")
    assert "--artifacts-destination" in track(here, mlflow, "refused", "--once", "--experiment", "local", code=1)
    elsewhere = MlflowProcess(mlflow.folder)
    assert "does not answer" in track(here, elsewhere, "refused", code=5)
    # The coordinator is no MLflow.
    elsewhere.port, elsewhere.url = int(here.url.rpartition(":")[2]), here.url
    assert "no MLflow tracking server of version" in track(here, elsewhere, "refused", code=1)


@needs_mlflow
@patient
@pytest.mark.slow
def test_a_wrong_login_is_named_without_its_password(here: Live, tmp_path: Path) -> None:
    here.running("login", "mercy", "bay", settings=SETTINGS)
    folder = tmp_path / "mlflow"
    folder.mkdir()
    (folder / "auth.ini").write_text(
        "[mlflow]\ndefault_permission = READ\ndatabase_uri = sqlite:///auth.db\nadmin_username = admin\n"
        "admin_password = a-longer-pass-word\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    config = {"MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"), "MLFLOW_FLASK_SERVER_SECRET_KEY": "of-a-test"}
    with serving(folder, "--app-name", "basic-auth", **config) as server:
        login = {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": "not-the-password"}
        said = track(here, server, "login", "--once", code=1, **login)
        assert ("MLFLOW_TRACKING_PASSWORD" in said, "not-the-password" in said) == (True, False)
        assert "MLFLOW_TRACKING_TOKEN" in track(here, server, "login", "--once", code=1)
        track(here, server, "login", "--once", **login | {"MLFLOW_TRACKING_PASSWORD": "a-longer-pass-word"})
