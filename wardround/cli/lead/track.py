"""The command `wardround study track`: a study's released results on an MLflow tracking server."""

from __future__ import annotations

import os
import re
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from wardround.cli.officer.certificate import checked
from wardround.cli.shared.shared import AsJson, KeyFile, Server, StudyName, operator, plain_errors, print_json, say

if TYPE_CHECKING:
    from wardround.tracking.follower import PassReport, StudyFollower

Address = Annotated[
    str | None, typer.Option("--mlflow", help="address of the tracking server. Default: MLFLOW_TRACKING_URI")
]
Experiment = Annotated[str, typer.Option(help="experiment that gets the study's run")]
RegisteredModel = Annotated[
    str | None, typer.Option("--registered-model", help="registered model that gets the version. Default: the study")
]
Once = Annotated[
    bool, typer.Option("--once", help="copy what is there now, the newest model included, and do not wait for more")
]
Every = Annotated[float, typer.Option("--every", help="seconds between two looks at the study", min=1.0, max=3600.0)]


def track(
    study: StudyName,
    mlflow: Address = None,
    experiment: Experiment = "wardround",
    registered_model: RegisteredModel = None,
    once: Once = False,
    every: Every = 15.0,
    server: Server = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Copy a study's settings, ε by round, metrics and model to MLflow, until the study ends.

    Only released results are sent. Started again, the command goes on with the same run. The login of the tracking
    server comes from MLflow's own variables, such as MLFLOW_TRACKING_TOKEN.
    """
    with plain_errors():
        address, model = _tracking_address(mlflow), _registry_name(registered_model or study)
        experiment_name = _experiment_name(experiment)
        from wardround.tracking.follower import StudyFollower
        from wardround.tracking.mlflow_server import MlflowServer

        with operator(server, key_file) as client:
            # A study that is not there is reported before a run is created.
            client.study(study)
            follower = StudyFollower(
                client,
                study,
                MlflowServer(address, experiment_name),
                model,
                lambda reader: checked(reader, study, None, key_file, None)[0],
            )
            report = follower.copy(with_model=once)
            if not once:
                report = _follow(follower, report, every, quiet=as_json)
        if as_json:
            print_json({"study": study, **asdict(report)})
        else:
            _say_report(report)
            if report.model_version is not None:
                say(f"model: version {report.model_version} of {model}")


def _follow(follower: StudyFollower, report: PassReport, every: float, *, quiet: bool) -> PassReport:
    """Copy until the study is finished. A server that does not answer is tried again for ever."""
    from client_sdk.errors import ConnectionFailed, ServerFailure, UnexpectedAnswer

    is_away = False
    while not report.is_over:
        if report.new_points and not quiet:
            _say_report(report)
        time.sleep(every)
        try:
            report = follower.copy()
        except (ConnectionFailed, ServerFailure, UnexpectedAnswer) as error:
            if not is_away:
                say(f"{error}. Trying again every {every:g} s", err=True)
            is_away = True
        else:
            if is_away:
                say("the server answers again", err=True)
            is_away = False
    return report


def _say_report(report: PassReport) -> None:
    say(f"{report.rounds} rounds begun: {report.new_points} new metric values in run {report.run_id}")


def _tracking_address(address: str | None) -> str:
    from client_sdk.errors import ConfigurationError
    from wardround.tracking.mlflow_server import require_server_address

    server_address = address or os.environ.get("MLFLOW_TRACKING_URI")
    if not server_address:
        raise ConfigurationError("which tracking server? Pass --mlflow or set MLFLOW_TRACKING_URI")
    return require_server_address(server_address)


def _registry_name(name: str) -> str:
    from client_sdk.errors import ConfigurationError

    # MLflow forbids slashes and colons. A quote would end the name in a search.
    if re.fullmatch(r"[\w][\w .-]{0,199}", name) is None:
        raise ConfigurationError(
            "the name of a registered model has letters, digits, spaces, dots, hyphens and underscores, at most 200"
        )
    return name


def _experiment_name(name: str) -> str:
    from client_sdk.errors import ConfigurationError

    if not name.strip() or len(name) > 500:
        raise ConfigurationError("the name of an experiment has 1 to 500 characters")
    return name
