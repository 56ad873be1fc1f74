"""MLflow as the tracking server, through its own client (extra `mlflow`, package `mlflow-skinny`).

Plain HTTP requests would do for metrics. MLflow's client also has its ways to log in, its TLS settings and the stores
that a server may keep artefacts in. Its cost is twelve more packages, and a pin of `importlib-metadata` below 10.

The client sends telemetry to its makers by default. This module turns that off before the import.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from configparser import Error as ConfigParserError
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from client_sdk.errors import ConfigurationError
from wardround.tracking.entries import MetricPoint
from wardround.tracking.errors import TrackingRefused, TrackingServerAway
from wardround.tracking.follower import TrackedRun

# What one request may hold.
_MAX_POINTS, _MAX_PARAMETERS = 1000, 100
MIN_VERSION = (2, 9)
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # MLflow would repeat a request whose answer was lost, and so create a second run or model version. The follower
    # reads what the server has before it tries again.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}
_LOGIN = "set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"


class MlflowServer:
    """The tracking server at an address. Its login comes from MLflow's own environment variables and files.

    Args:
        address: http or https, with the path at which MLflow is served, if any.
        experiment: name of the experiment. It is created if there is none.

    Raises:
        ConfigurationError: the address is not one of a server, or holds a password.
        TrackingServerAway: the server does not answer.
        TrackingRefused: another program answers, or an MLflow before 2.9, or the login is wrong.
        ModuleNotFoundError: MLflow's client is not installed.
    """

    def __init__(self, address: str, experiment: str) -> None:
        self._address, self._experiment = require_server_address(address), experiment
        os.environ.update(_ENVIRONMENT)
        # Its own lines about repeated requests quote addresses in full.
        for name in ("mlflow", "urllib3"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self._entities: Any = import_module("mlflow.entities")
        self._client: Any = import_module("mlflow").MlflowClient(self._address, self._address)
        self._require_version()

    def _require_version(self) -> None:
        credentials, rest = import_module("mlflow.utils.credentials"), import_module("mlflow.utils.rest_utils")
        with self._plain_errors():
            host = credentials.get_default_host_creds(self._address)
            response = rest.http_request(host_creds=host, endpoint="/version", method="GET")
            if response.status_code in (401, 403):
                response.raise_for_status()
        numbers = re.match(r"(\d+)\.(\d+)\.", response.text) if response.status_code == 200 else None
        if numbers is None or tuple(map(int, numbers.groups())) < MIN_VERSION:
            raise TrackingRefused(
                f"no MLflow tracking server of version {'.'.join(map(str, MIN_VERSION))} or later answers at "
                f"{self._address}: check the address, or update the server"
            )

    def open_run(self, name: str, tags: Mapping[str, str]) -> TrackedRun:
        """Return the run that has these tags. If there is none, it is created with them."""
        with self._plain_errors():
            experiment_id = self._experiment_id()
            filter_text = " and ".join(f"tags.`{key}` = '{text}'" for key, text in tags.items())
            runs = self._client.search_runs([experiment_id], filter_text, order_by=["attributes.start_time ASC"])
            run = runs[0] if runs else self._client.create_run(experiment_id, run_name=name, tags=dict(tags))
            run_id: str = run.info.run_id
            self._require_shared_artefacts(run.info.artifact_uri)
            histories = [self._client.get_metric_history(run_id, key) for key in run.data.metrics]
            return TrackedRun(
                run_id,
                points={(point.key, point.step) for history in histories for point in history},
                parameters=set(run.data.params),
                tags=dict(run.data.tags),
                files={file.path for file in self._client.list_artifacts(run_id)},
            )

    def _experiment_id(self) -> str:
        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment is None:
            try:
                return self._client.create_experiment(self._experiment)
            except import_module("mlflow").MlflowException:
                # Another follower may have been first.
                experiment = self._client.get_experiment_by_name(self._experiment)
                if experiment is None:
                    raise
        if experiment.lifecycle_stage == "deleted":
            raise TrackingRefused(
                f"the experiment {self._experiment} is deleted on the tracking server: restore it, or name another "
                "one with --experiment"
            )
        return experiment.experiment_id

    def _require_shared_artefacts(self, root: str) -> None:
        """Require a store that this machine can reach. MLflow's client would write into a folder of this machine."""
        if urlsplit(root).scheme in ("", "file"):
            raise TrackingRefused(
                f"the experiment {self._experiment} keeps its files in a folder of the tracking server's machine: "
                "start that server with --artifacts-destination, and name a new experiment with --experiment"
            )

    def log_parameters(self, run_id: str, parameters: Mapping[str, str]) -> None:
        entries = [self._entities.Param(key, text) for key, text in parameters.items()]
        with self._plain_errors():
            for part in _parts(entries, _MAX_PARAMETERS):
                self._client.log_batch(run_id, params=part)

    def log_points(self, run_id: str, points: Sequence[MetricPoint]) -> None:
        entries = [self._entities.Metric(point.key, point.value, point.timestamp, point.step) for point in points]
        with self._plain_errors():
            for part in _parts(entries, _MAX_POINTS):
                self._client.log_batch(run_id, metrics=part)

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        with self._plain_errors():
            self._client.log_batch(run_id, tags=[self._entities.RunTag(key, text) for key, text in tags.items()])

    def put_files(self, run_id: str, files: Sequence[Path], folder: str | None) -> None:
        with self._plain_errors():
            for file in files:
                self._client.log_artifact(run_id, str(file), folder)

    def require_registry_name(self, name: str, tags: Mapping[str, str]) -> None:
        """Require a registered model of this name with these tags. If there is none, it is created."""
        with self._plain_errors():
            registered = self._registered_model(name) or self._create_registered_model(name, tags)
        if registered is None or any(registered.tags.get(key) != text for key, text in tags.items()):
            raise TrackingRefused(
                f"the name {name} is taken in the model registry of the tracking server, and not by this study: name "
                "another registered model with --registered-model"
            )

    def _registered_model(self, name: str) -> Any:
        """Return the registered model of this name, or None."""
        # A search would find none on older servers, whose tags do not tell prompts apart.
        try:
            return self._client.get_registered_model(name)
        except import_module("mlflow").MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None

    def _create_registered_model(self, name: str, tags: Mapping[str, str]) -> Any:
        """Return the new registered model, or the one that was created meanwhile. None: a prompt has the name."""
        try:
            return self._client.create_registered_model(name, dict(tags))
        except import_module("mlflow").MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return self._registered_model(name)

    def version_of(self, name: str, tags: Mapping[str, str]) -> str | None:
        """Return the number of the model version that has these tags, or None."""
        with self._plain_errors():
            versions = self._client.search_model_versions(f"name = '{name}'")
        equal_versions = (version for version in versions if tags.items() <= version.tags.items())
        return next((str(version.version) for version in equal_versions), None)

    def register(self, name: str, run_id: str, folder: str, tags: Mapping[str, str]) -> str:
        """Register the files in a folder of a run as a new model version, and return its number."""
        with self._plain_errors():
            source = f"{self._client.get_run(run_id).info.artifact_uri}/{folder}"
            version = self._client.create_model_version(name, source, run_id, dict(tags), await_creation_for=None)
            return str(version.version)

    def end_run(self, run_id: str, status: str) -> None:
        """Set the status of a run: FINISHED, KILLED or FAILED."""
        with self._plain_errors():
            self._client.set_terminated(run_id, status)

    @contextmanager
    def _plain_errors(self) -> Generator[None]:
        """Turn errors of MLflow's client into one sentence each.

        The causes are left out: MLflow's texts quote whole answers, and tracebacks print them.
        """
        mlflow, requests = import_module("mlflow.exceptions"), import_module("requests")
        try:
            yield
        except mlflow.MlflowException as error:
            below = error.__cause__ or error.__context__
            if isinstance(below, OSError | UnicodeError):
                raise self._of_request(below) from None
            raise self._of_status(error.get_http_status_code(), error.message) from None
        except (requests.RequestException, UnicodeError) as error:
            raise self._of_request(error) from None
        except ConfigParserError:
            # Its text quotes the line, which may hold the password.
            raise TrackingRefused("the file ~/.mlflow/credentials is not in MLflow's form: correct it") from None
        except ValueError as error:
            raise TrackingRefused(f"a variable of MLflow's client is wrong: {error}") from None
        except ImportError as error:
            raise TrackingRefused(
                f"the tracking server keeps its files in a store that needs the package {error.name or 'of its kind'} "
                "here: install it beside wardround[mlflow]"
            ) from None

    def _of_request(self, error: Exception) -> Exception:
        """Return the error for an HTTP request that could not be sent, or was not answered as wanted."""
        requests = import_module("requests").exceptions
        answer = getattr(error, "response", None)
        if answer is not None:
            return self._of_status(answer.status_code, f"status {answer.status_code}")
        if isinstance(error, requests.SSLError):
            return TrackingRefused(
                f"the TLS certificate of {self._address} is not trusted here: name the file of its authority in "
                "MLFLOW_TRACKING_SERVER_CERT_PATH"
            )
        if isinstance(error, requests.InvalidHeader | UnicodeError):
            return TrackingRefused(f"the login has a character that no header may hold: {_LOGIN}")
        if not isinstance(error, requests.RequestException):
            return TrackingRefused(
                "a file of MLflow's TLS settings cannot be read: correct MLFLOW_TRACKING_SERVER_CERT_PATH and "
                "MLFLOW_TRACKING_CLIENT_CERT_PATH"
            )
        return TrackingServerAway(
            f"the tracking server {self._address} does not answer: check the address, and that the server is running"
        )

    def _of_status(self, status: int, text: str) -> Exception:
        """Return the error for an answer of this HTTP status. text: the server's words."""
        if status == 401:
            return TrackingRefused(f"the tracking server {self._address} does not accept the login: {_LOGIN}")
        if status == 403:
            return TrackingRefused(
                f"the tracking server {self._address} does not allow this login or this host name: ask its "
                "administrator for the right to edit the experiment and the registered model"
            )
        if status in (408, 429) or status >= 500:
            return TrackingServerAway(f"the tracking server {self._address} answers with an error (status {status})")
        return TrackingRefused(f"the tracking server {self._address} refuses the request: {text[:300].splitlines()[0]}")


def require_server_address(address: str) -> str:
    """Return the address of a tracking server without a slash at its end.

    Raises:
        ConfigurationError: it is not http or https, or holds a login, a query or a fragment.
    """
    wrong = "the tracking server's address begins with http:// or https://, such as http://127.0.0.1:5000"
    try:
        parts = urlsplit(address)
        is_server = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
    except ValueError:
        raise ConfigurationError(wrong) from None
    if not is_server:
        raise ConfigurationError(wrong)
    if "@" in parts.netloc:
        raise ConfigurationError(f"the tracking server's address must not hold a login: {_LOGIN}")
    if parts.query or parts.fragment or not address.isascii() or re.search(r"\s", address):
        raise ConfigurationError(f"{wrong}, without a question mark, a fragment or spaces")
    return address.rstrip("/")


def _parts(entries: list[Any], size: int) -> Iterator[list[Any]]:
    return (entries[start : start + size] for start in range(0, len(entries), size))
