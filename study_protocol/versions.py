"""The number of the protocol: the one that this program speaks, and the least that a study needs of all members. Pure.

Every change of the wire that an older program cannot read, or would not check, raises `PROTOCOL`. It gets a line in
`REQUIREMENTS`, so that a study that does not use it stays open to older programs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PROTOCOL = 4
# The number of programs that name none: those before there were numbers.
UNNUMBERED = 1
# From this number on programs read ledgers that name models.
NAMED_MODELS = 2
# From this number on programs read questions with the entry `centred`.
CENTRED_SQUARES = 3
# From this number on programs read questions by hospital.
BLOCKS_BY_HOSPITAL = 4
# From this number on programs read questions of kind `marginals`, and the section `synthesis`.
MARGINALS = 4
# From this number on programs read questions of kind `distances`.
DISTANCES = 4
# From this number on programs read questions of kind `glm`.
GLM = 4
# From this number on programs read the section `cohort`.
COHORTS = 4
# From this number on programs read columns that a site may lack, or whose unmapped codes are missing.
LACKING_COLUMNS = 4
# From this number on programs have the task additive.
ADDITIVE_MODELS = 4
# From this number on programs read ledgers that name people.
NAMED_PEOPLE = 4
# From this number on programs read the entry `proximal` of local steps.
PROXIMAL_STEPS = 4
# From this number on programs read the section `monitoring`, and questions with `calibration` or `first_record`.
MONITORING = 4
_COLUMN_OPTIONS = {"site-may-lack", "unmapped-is-missing"}
# From this number on programs read every question that may be chosen now.
ALL_QUESTIONS = MARGINALS
# Headers of the answer that describes a study. A hospital names the first two when it enrols, which it does not sign.
VERSION_HEADER, PROTOCOL_HEADER = "Wardround-Version", "Wardround-Protocol"
STUDY_PROTOCOL_HEADER = "Wardround-Study-Protocol"
UNKNOWN_VERSION = "unknown"
VERSION_PATTERN = r"^[0-9A-Za-z][0-9A-Za-z.+!_-]{0,63}$"
_VERSION = re.compile(VERSION_PATTERN)
# No program counts further, and every database holds it.
MAX_PROTOCOL = 1_000_000

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Requirement:
    """The first number of the protocol with a feature. `used_by` receives a study's settings as JSON."""

    protocol: int
    feature: str
    used_by: Callable[[Settings], bool]


def _masked(settings: Settings) -> bool:
    return settings["privacy"].get("masking") is not None


def _witnessed(settings: Settings) -> bool:
    return bool(settings["schedule"].get("witnesses"))


def _in_slots(settings: Settings) -> bool:
    return settings["schedule"].get("slots") is not None


def _with_noise_schedule(settings: Settings) -> bool:
    return settings["privacy"].get("noise_schedule") is not None


def _centred_by_schedule(settings: Settings) -> bool:
    evaluation: Settings | None = settings.get("evaluation")
    question: Settings | None = None if evaluation is None else evaluation.get("question")
    return question is not None and question.get("centred") is True


def _adaptively_clipped(settings: Settings) -> bool:
    return settings["privacy"].get("adaptive_clip") is not None


def _named_rules(settings: Settings) -> bool:
    return any(limit.get("enforcement") is not None for limit in settings["privacy"]["limits"])


def _shared_with_questions(settings: Settings) -> bool:
    statistics: Settings | None = settings.get("statistics")
    return statistics is not None and statistics.get("share") is not None


def _with_decision_deadline(settings: Settings) -> bool:
    statistics: Settings | None = settings.get("statistics")
    return statistics is not None and statistics.get("decision_deadline_seconds") is not None


def _synthesises(settings: Settings) -> bool:
    return settings.get("synthesis") is not None


def _has_cohort(settings: Settings) -> bool:
    return settings.get("cohort") is not None


def _lets_columns_lack(settings: Settings) -> bool:
    training: Settings = settings.get("training") or {}
    parameters: Settings = training.get("task_parameters") or {}
    texts = (text for key, text in parameters.items() if key.startswith("column.") and isinstance(text, str))
    return any(_COLUMN_OPTIONS & set(map(str.strip, text.split(";"))) for text in texts)


def _draws_steps_back(settings: Settings) -> bool:
    training: Settings = settings.get("training") or {}
    return bool(training.get("proximal"))


def _adds_curves(settings: Settings) -> bool:
    training: Settings = settings.get("training") or {}
    return training.get("task") == "additive"


def _names_an_audit(settings: Settings) -> bool:
    return settings.get("audit_sha256") is not None


def _monitors(settings: Settings) -> bool:
    return settings.get("monitoring") is not None


# One line each. A key that older settings do not have is read with `get`.
REQUIREMENTS = (
    Requirement(2, "sums under masks", _masked),
    Requirement(2, "outside witnesses", _witnessed),
    Requirement(2, "answers in slots", _in_slots),
    Requirement(CENTRED_SQUARES, "centred squares in scheduled evaluations", _centred_by_schedule),
    Requirement(3, "an adaptive clip norm", _adaptively_clipped),
    Requirement(3, "a noise schedule", _with_noise_schedule),
    Requirement(3, "a named rule for a limit (enforcement)", _named_rules),
    Requirement(3, "a share of the budget for questions", _shared_with_questions),
    Requirement(3, "a deadline for decisions about questions", _with_decision_deadline),
    Requirement(MARGINALS, "synthetic records (section synthesis)", _synthesises),
    Requirement(LACKING_COLUMNS, "columns with site-may-lack or unmapped-is-missing", _lets_columns_lack),
    Requirement(PROXIMAL_STEPS, "local steps that are drawn back (training.proximal)", _draws_steps_back),
    Requirement(ADDITIVE_MODELS, "task additive", _adds_curves),
    Requirement(MARGINALS, "a page of an audit (audit_sha256)", _names_an_audit),
    Requirement(MONITORING, "questions about later patients (section monitoring)", _monitors),
    Requirement(COHORTS, "patients and columns from OMOP (section cohort)", _has_cohort),
)


def min_protocol(settings: Settings) -> int:
    """Return the least number that a study with these settings (JSON) needs of its coordinator and its hospitals."""
    return max(
        (requirement.protocol for requirement in REQUIREMENTS if requirement.used_by(settings)), default=UNNUMBERED
    )


def study_protocol(settings: Settings, *, names_models: bool) -> int:
    """Return the number that a new study is created with.

    A study that takes questions is created for all forms of them, because they are chosen later.

    Args:
        names_models: whether its ledger will name every released model, and the people who act.
    """
    named_protocol = NAMED_PEOPLE if names_models else UNNUMBERED
    question_protocol = ALL_QUESTIONS if settings.get("statistics") is not None else UNNUMBERED
    return max(min_protocol(settings), named_protocol, question_protocol)


def needed_for(settings: Settings, spoken: int) -> list[str]:
    """Return the features of these settings that a program that speaks `spoken` does not know, in words."""
    return [
        requirement.feature
        for requirement in REQUIREMENTS
        if requirement.protocol > spoken and requirement.used_by(settings)
    ]


def is_protocol(value: object) -> bool:
    """Return whether it is a number of a protocol."""
    return type(value) is int and UNNUMBERED <= value <= MAX_PROTOCOL


def protocol_in(text: str | None) -> int:
    """Return the number in a header, or `UNNUMBERED` if there is none, or none that can be read."""
    # Of ASCII: int would take other digits, signs and spaces, too.
    number = int(text) if text is not None and re.fullmatch(r"[0-9]{1,7}", text) else UNNUMBERED
    return number if is_protocol(number) else UNNUMBERED


def is_version(value: object) -> bool:
    """Return whether it is a program's version as one is written: short, and harmless in a log."""
    return isinstance(value, str) and _VERSION.fullmatch(value) is not None


@dataclass(frozen=True)
class ProgramVersion:
    """A program's version, and the number of the protocol that it speaks. Without arguments: one that names neither."""

    version: str = UNKNOWN_VERSION
    protocol: int = UNNUMBERED


@functools.cache
def program_version() -> str:
    """Return the version of this program, or `UNKNOWN_VERSION` if it runs without being installed."""
    try:
        return version("wardround")
    except PackageNotFoundError:
        return UNKNOWN_VERSION
