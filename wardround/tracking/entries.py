"""The parameters, metrics and tags of a study on a tracking server.

All of it comes from answers that every reader of the study gets. The names of hospitals, which leads get with a
round, are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from study_protocol.study.certificate import Certificate
from study_protocol.study.messages import BudgetStatement, RoundView, Study

# MLflow's limits for parameters. Versions below 2.9 allow shorter values.
MAX_KEY = 250
MAX_TEXT = 6000
_CUT = " … (settings.json has the rest)"
# MLflow allows a few more characters. A slash would make folders of a key, and a dot at its end is not a file name.
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9_.\- ]")
PREFIX = "wardround."
# Two versions of one registered model differ in these tags.
VERSION_TAGS = (f"{PREFIX}model_sha256", f"{PREFIX}round")


@dataclass(frozen=True)
class MetricPoint:
    """One value of a metric.

    Attributes:
        key: name of the metric.
        step: number of the round.
        value: finite.
        timestamp: milliseconds since the epoch, when the round ended. It is the same whenever the round is read.
    """

    key: str
    step: int
    value: float
    timestamp: int


def parameters_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings as flat parameters.

    Each entry of a nested object has a key such as `privacy.max_steps`. A list is one value, as JSON. Entries without
    a value are left out. A value above 6,000 characters is cut and says so.

    Args:
        settings: a JSON object.
    """
    parameters: dict[str, str] = {}
    for path, text in _flat(settings, ""):
        key = _key(path, path in parameters)
        parameters[key] = text if len(text) <= MAX_TEXT else text[: MAX_TEXT - len(_CUT)] + _CUT
    return parameters


def _flat(entries: Mapping[str, Any], before: str) -> Iterator[tuple[str, str]]:
    for name, entry in entries.items():
        if isinstance(entry, Mapping):
            yield from _flat(cast("Mapping[str, Any]", entry), f"{before}{name}.")
        elif entry not in (None, ""):
            yield f"{before}{name}", entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False)


def _key(path: str, is_taken: bool) -> str:
    """Return a key that MLflow accepts. It ends with a digest of the path where that is another text."""
    key = _NOT_IN_KEYS.sub("_", path)
    if key == path and len(key) <= MAX_KEY and not is_taken:
        return key
    digest = hashlib.sha256(f"{path}{is_taken}".encode()).hexdigest()[:12]
    return f"{key[: MAX_KEY - len(digest) - 1]}-{digest}"


def points_of(rounds: Iterable[RoundView]) -> list[MetricPoint]:
    """Return what rounds spent and measured. A round that is under way has no points yet."""
    return [
        MetricPoint(key, view.round, value, int((view.ended_at or view.started_at).timestamp() * 1000))
        for view in rounds
        for key, value in _measured(view)
    ]


def _measured(view: RoundView) -> Iterator[tuple[str, float]]:
    for spent in view.spent or ():
        limit = f"{spent.level}/{spent.definition}"
        yield f"epsilon_spent/{limit}", spent.spent
        yield f"epsilon_limit/{limit}", spent.epsilon
        if spent.steps is not None:
            yield f"noised_steps/{limit}", float(spent.steps)
        if spent.squares is not None:
            yield f"sum_of_squares/{limit}", spent.squares
    if view.clip_norm is not None:
        yield "training/clip_norm", view.clip_norm
    # A released metric has no slash in its name, so it cannot take another one's place.
    yield from (view.metrics.values.items() if view.metrics is not None else ())


def identity_tags(study: Study) -> dict[str, str]:
    """Return the tags that name one study: its run on a tracking server is found by them.

    Two coordinators may have studies of one name and with equal settings.
    """
    return {
        f"{PREFIX}study": study.study,
        f"{PREFIX}settings_sha256": study.settings_sha256,
        f"{PREFIX}coordinator_key": study.coordinator_key,
    }


def state_tags(study: Study, budget: BudgetStatement, rounds: Iterable[RoundView]) -> dict[str, str]:
    """Return the tags that change while a study goes on. Tags without a value are left out."""
    evaluation_sets = [view.metrics.evaluation_set for view in rounds if view.metrics is not None]
    tags = {
        "title": study.title,
        "state": study.state,
        "stop_reason": study.stop_reason or "",
        "evaluation_set": evaluation_sets[-1] if evaluation_sets else "",
        "ledger_entries": str(budget.ledger.entries),
        "ledger_head": budget.ledger.head.removeprefix("sha256:"),
    }
    return {f"{PREFIX}{name}": text for name, text in tags.items() if text}


def model_tags(certificate: Certificate, round_number: int, sha256: str) -> dict[str, str]:
    """Return the tags of a model version.

    Args:
        certificate: of this model, its signature checked.
        round_number: the newest round that the model is made of.
        sha256: of the model's file.
    """
    tags = {
        "study": certificate.study,
        "settings_sha256": certificate.settings_sha256,
        "coordinator_key": certificate.coordinator_key,
        "round": str(round_number),
        "model_sha256": sha256,
        "ledger_entries": str(certificate.ledger.entries),
        "ledger_head": certificate.ledger.sha256,
        "state": certificate.state,
    }
    return {f"{PREFIX}{name}": text for name, text in tags.items()}
