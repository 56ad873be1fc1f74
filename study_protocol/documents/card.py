"""A released model's card, in the order of Mitchell et al. (2019): the model, how it was made, what it may give away.

Facts that only people know (the intended use, a contact) come from their notes. Without notes the card says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from study_protocol.documents.kept_windows import kept_in_words
from study_protocol.documents.phrases import (
    UNIT_NOUNS,
    exact_delta,
    hospitals,
    named_file,
    result_in_words,
    training_rounds,
)
from study_protocol.study.any_settings import require_training
from study_protocol.study.certificate import Certificate
from study_protocol.study.messages import Metrics, Study
from study_protocol.study.noise_schedule import schedule_in_words
from study_protocol.study.training import ALL, Averaging, Training
from study_protocol.wire.rounded import exact, number, percent

TO_WRITE = "TO BE WRITTEN by the people who release this model (see --notes)."
OUTSIDE = (
    "Measured by the coordinator on a declared evaluation set, outside the guarantee of privacy: nothing of this ε "
    "covers that set."
)
OF_THE_ROUNDS = "Measured are models of single rounds. This card is about their mean: measure it (wardround evaluate)."


class Notes(BaseModel):
    """Notes that people write: the file of --notes, TOML, every entry a text. Names as in Mitchell et al. (2019)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    intended_use: str = TO_WRITE
    out_of_scope_use: str = TO_WRITE
    contacts: str = TO_WRITE
    factors: str = TO_WRITE
    limitations: str = TO_WRITE
    ethical_considerations: str = TO_WRITE
    license: str | None = None
    citation: str | None = None


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it. written: by people, word by word."""

    title: str
    lines: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    code: str | None = None
    written: str | None = None


@dataclass(frozen=True)
class Card:
    """A model's card.

    Attributes:
        metrics: by round, oldest first, for the model of the card and the ones before it.
    """

    study: Study
    certificate: Certificate
    metrics: tuple[tuple[int, Metrics], ...]
    notes: Notes = field(default_factory=Notes)

    @property
    def title(self) -> str:
        """The title that the study's people use."""
        return self.study.title or self.study.study

    def sections(self) -> list[Section]:
        """Return all sections, in order."""
        notes = self.notes
        return [
            Section("Model details", rows=_details(self), columns=("What", "Value")),
            Section("Contacts", written=notes.contacts),
            Section("Intended use", written=notes.intended_use),
            Section("Out-of-scope use", written=notes.out_of_scope_use),
            Section("Factors", written=notes.factors),
            _measured(self.metrics, is_mean=self.certificate.result is not None),
            Section("Training data", lines=_data(self)),
            Section("Training settings", rows=_settings(self.study), columns=("Setting", "Value")),
            Section("Privacy", lines=_privacy(self.certificate), columns=_LIMIT, rows=_limits(self.certificate)),
            Section("Ethical considerations", written=notes.ethical_considerations),
            Section("Limitations", lines=_CAVEATS, written=notes.limitations),
            Section("How to load it and predict", lines=_load_lines(self), code=_code(self)),
            *([] if notes.citation is None else [Section("Citation", written=notes.citation)]),
        ]


_LIMIT = ("Limit", "Guaranteed ε", "Limit ε", "δ", "An attacker guesses rightly, on average, at most")
_CAVEATS = (
    "Noise that protects patients makes a model worse for small groups first: look at such groups by themselves.",
    "The model was trained on the patients of these hospitals; for others its metrics may be worse.",
    "It is no medical device because it has a certificate of privacy.",
)


def _details(card: Card) -> tuple[tuple[str, ...], ...]:
    study, stated = card.study, card.certificate
    training, file = require_training(study.settings).training, named_file(stated)
    trained_in = training_rounds(stated.rounds, stated.mechanism.steps_per_round)
    origin = () if stated.model is None else (("Released in round", str(stated.model.version)),)
    if stated.result is not None:
        origin = (("Mean of released models", result_in_words(stated.result)),)
    released = () if file is None else (*origin, ("SHA-256", file.sha256))
    licence = () if card.notes.license is None else (("Licence", card.notes.license),)
    return (
        ("Study", study.study),
        ("Task", training.task),
        *_part(training),
        *released,
        ("Trained by", f"{hospitals(stated.members)}, {training.algorithm}, {trained_in} rounds"),
        ("Settings, SHA-256", study.settings_sha256),
        ("Ledger", f"{stated.ledger.entries} entries, {stated.ledger.sha256}"),
        *licence,
    )


def _part(training: Training) -> tuple[tuple[str, str], ...]:
    """Return words for the trained part of the model, if it is not the whole model."""
    names = training.trainable if isinstance(training.trainable, str) else ", ".join(training.trainable)
    trained = () if training.trainable == ALL else (("Trained part", names),)
    return trained + (() if training.backbone is None else (("Backbone, SHA-256", training.backbone.sha256),))


def _measured(metrics: Sequence[tuple[int, Metrics]], *, is_mean: bool) -> Section:
    if not metrics:
        return Section("Metrics and evaluation data", lines=("No evaluation set was declared: nothing was measured.",))
    rows = tuple(
        (str(round), measured.evaluation_set, name, f"{value:.4g}")
        for round, measured in metrics
        for name, value in measured.values.items()
    )
    columns = ("Round", "Evaluation set", "Metric", "Value")
    lines = (OUTSIDE, *((OF_THE_ROUNDS,) if is_mean else ()))
    return Section("Metrics and evaluation data", lines=lines, columns=columns, rows=rows)


def _data(card: Card) -> tuple[str, ...]:
    members = card.certificate.members
    columns = [
        f"{name.removeprefix('column.')}: {value}"
        for name, value in require_training(card.study.settings).training.task_parameters.items()
        if name.startswith("column.")
    ]
    return (
        f"Records of {hospitals(members)}, which never left them. Their number was not collected.",
        f"Columns: {'; '.join(columns)}." if columns else "The task says what a record is.",
    )


def _settings(study: Study) -> tuple[tuple[str, ...], ...]:
    settings = require_training(study.settings)
    training, privacy = settings.training, settings.privacy
    parameters = [
        (name, str(value)) for name, value in training.task_parameters.items() if not name.startswith("column.")
    ]
    return (
        *parameters,
        ("algorithm", training.algorithm),
        ("local_steps", str(training.local_steps)),
        ("learning_rate", exact(training.learning_rate)),
        *((("proximal", exact(training.proximal)),) if training.proximal else ()),
        ("optimiser", f"{training.optimiser.name}, learning rate {exact(training.optimiser.learning_rate)}"),
        *(() if (mean := training.optimiser.averaging) is None else (("averaging", _in_words(mean)),)),
        ("rows_per_patient", str(training.rows_per_patient)),
        ("scheme", privacy.rules.display_name),
        ("clip_norm", f"{'' if privacy.adaptive_clip is None else 'adaptive, starting at '}{exact(privacy.clip_norm)}"),
        ("noise_multiplier", exact(privacy.noise_multiplier)),
        *(() if (stages := privacy.noise_stages) is None else (("noise_schedule", schedule_in_words(stages)),)),
        ("sampling_rate", exact(privacy.sampling_rate)),
        ("max_steps", str(privacy.max_steps)),
        *(("monitoring", line) for line in kept_in_words(settings)),
    )


def _in_words(mean: Averaging) -> str:
    """Return the mean of the released models that is the study's result, in words."""
    if mean.name == "tail":
        return f"the mean of the newest models, {exact(mean.share)} of all"
    return f"the mean of the models, each counting {exact(mean.decay)} times the next newer one"


def _privacy(stated: Certificate) -> tuple[str, ...]:
    return (
        *stated.summary[1:],
        "The numbers are those of the signed certificate of the same round (wardround certificate show).",
    )


def _limits(stated: Certificate) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            f"each {UNIT_NOUNS[limit.level]}, {limit.definition}",
            number(limit.spent),
            exact(limit.epsilon),
            exact_delta(limit),
            "100 %" if limit.attack_success is None else percent(limit.attack_success),
        )
        for limit in stated.limits
        if limit.epsilon is not None
    )


def _load_lines(card: Card) -> tuple[str, ...]:
    file = named_file(card.certificate)
    if file is None:
        return ("No model has been released.",)
    return (
        f"The file is safetensors, {file.bytes} bytes. Check it first: wardround certificate verify certificate.json "
        "--model model.safetensors.",
        "Inputs are prepared as the task of the study prepares them: the same columns, in the same order and ranges.",
    )


def _code(card: Card) -> str | None:
    if card.certificate.model is None:
        return None
    version = card.certificate.model.version
    round_option = "" if card.certificate.result is not None else f" --round {version}"
    return f"wardround study model {card.study.study}{round_option} -o model.safetensors"
