"""Metadata of a model's file: the `__metadata__` of its safetensors header, texts by name.

    wardround        version of this format: 1
    study, round     the study of the model, and the round that released it. 0: the initial one
    task             name of the task. task_parameters: as in the study's settings
    columns          [{"encoding", "name"}, ...]: the parameters `column.<name>`, in the order of a table's inputs
    settings_sha256  digest of the study's settings
    trainable        as in the settings, JSON: the parameters that the file holds, left out if it holds all
    backbone_sha256  of the file that the other parameters are in, left out if the settings name none
    ledger_entries, ledger_sha256   the study's ledger up to the entry that settled the round, 0 and zeros in round 0
    mean_of          [rounds]: the file is the mean of their models (`average_models`), and `round` the newest of them.
                     A released model has no such entry
    mean_weights     [numbers]: the weight of each of these rounds, adding up to 1, left out if all count alike
    adapted_from     SHA-256 of the released file that `wardround adapt` began with. adapted: what it fitted to local
                     patients, and that the file stays at home. Both are left out elsewhere

A value that is no text is canonical JSON. Hospitals compare the file's SHA-256. So the content does not depend on when
or how often a file is written. The entry that settled a round is one and never changes, even if entries are appended
before the release.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from study_protocol.study.settings import StudySettings
from study_protocol.study.training import ALL
from study_protocol.wire.documents import load_json
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.tensors import TensorError
from study_protocol.wire.text import Text
from study_protocol.wire.values import Message, Name, Rate, Sha256, Whole

FORMAT = "wardround"
COLUMN = "column."
LONGEST_METADATA = 6 << 20
"""Most bytes of the metadata in a header: task parameters twice, each quote and backslash doubled."""

_EMPTY_LEDGER = "0" * 64
_JSON = ("task_parameters", "columns")
ADAPTED_FROM = "adapted_from"
"""Name of the text by which a file says that a hospital adapted it."""
# Left out of a header where they have their default, which is what older files mean.
_OPTIONAL = ("mean_of", "mean_weights", "trainable", "backbone_sha256", ADAPTED_FROM, "adapted")
_PART = ("trainable", "backbone_sha256")
_NUMBERS = ("round", "ledger_entries")
_OPTIONAL_JSON = ("mean_of", "mean_weights", "trainable")
# Tolerance of a sum of weights.
_ROUNDED = 1e-9


class InputColumn(Message):
    """One column of a table as a task's parameters describe it."""

    name: Text = Field(description="as in the table's header")
    encoding: float | int | bool | Text = Field(description="how it is encoded, as in the parameter column.<name>")


class ModelMetadata(Message):
    """The study and round of a model, how records become its inputs, and the state of the ledger."""

    format: Literal[1] = Field(default=1, description="version of this format")
    study: Name = Field(description="whose model")
    round: Whole = Field(ge=0, description="the round that released it. 0: the initial one")
    task: Text = Field(description="name of the task")
    task_parameters: dict[Text, float | int | bool | Text] = Field(description="as in the study's settings")
    columns: tuple[InputColumn, ...] = Field(description="of a table, in the order of the inputs")
    settings_sha256: Sha256 = Field(description="digest of the study's settings")
    ledger_entries: Whole = Field(ge=0, description="the ledger's entry that settled the round. 0 in round 0")
    ledger_sha256: Sha256 = Field(description="its hash, zeros in round 0")
    trainable: Text | tuple[Text, ...] = Field(default=ALL, description="which parameters the file holds")
    backbone_sha256: Sha256 | None = Field(
        default=None, description="of the file that the others are in; none: no file"
    )
    mean_of: tuple[Annotated[Whole, Field(ge=0)], ...] = Field(
        default=(), description="rounds whose models this is the mean of; none: a released model"
    )
    mean_weights: tuple[Rate, ...] = Field(default=(), description="what each of them counts; none: all alike")

    adapted_from: Sha256 | None = Field(
        default=None, description="of the released file that a hospital adapted; none: not adapted"
    )
    adapted: Text | None = Field(default=None, description="what was adapted, and that the file stays at the hospital")

    @model_validator(mode="after")
    def _fits_itself(self) -> Self:
        if self.columns != _columns_of(self.task_parameters):
            raise ValueError("the columns are not those of the task's parameters")
        if self.mean_of and max(self.mean_of) != self.round:
            raise ValueError("a mean is of the newest of its rounds")
        if any(after <= before for before, after in pairwise(self.mean_of)):
            raise ValueError("a mean names each of its rounds once, in order")
        if self.mean_weights and len(self.mean_weights) != len(self.mean_of):
            raise ValueError("a mean has one weight for each of its rounds")
        if self.mean_weights and abs(math.fsum(self.mean_weights) - 1) > _ROUNDED:
            raise ValueError("the weights of a mean add up to 1")
        return self

    @model_validator(mode="after")
    def _names_its_origin(self) -> Self:
        if (self.adapted_from is None) != (self.adapted is None):
            raise ValueError("an adapted model names the released file and what was adapted")
        return self

    @classmethod
    def of(
        cls, study: str, settings: StudySettings, round_number: int, ledger: tuple[int, str] = (0, _EMPTY_LEDGER)
    ) -> Self:
        """ledger: sequence and hash of the entry that settled the round."""
        training = settings.training
        return cls(
            study=study,
            round=round_number,
            task=training.task,
            task_parameters=training.task_parameters,
            columns=_columns_of(training.task_parameters),
            settings_sha256=settings.digest(),
            trainable=training.trainable,
            backbone_sha256=None if training.backbone is None else training.backbone.sha256,
            ledger_entries=ledger[0],
            ledger_sha256=ledger[1],
        )

    @classmethod
    def within(cls, header: Mapping[str, str]) -> Self | None:
        """Return the metadata in a file's header, or None if it names no study.

        Raises:
            TensorError: `wrong-metadata`: another version of the format, or not in its form.
        """
        if FORMAT not in header:
            return None
        if header[FORMAT] != "1":
            reason = "the model's file is of a later version: pip install -U wardround, or ask who runs the study"
            raise TensorError("wrong-metadata", reason)
        try:
            values: dict[str, Any] = {name: text for name, text in header.items() if name != FORMAT}
            present = [name for name in _OPTIONAL_JSON if name in header]
            values |= {name: load_json(header[name]) for name in (*_JSON, *_NUMBERS, *present)}
            return cls.model_validate(values)
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            reason = "the metadata of the model's file is damaged: fetch it again (wardround study model)"
            raise TensorError("wrong-metadata", reason) from error

    def header(self) -> dict[str, str]:
        """Return the texts by name. Equal values give equal texts."""
        fields = type(self).model_fields
        absent = {name for name in _OPTIONAL if getattr(self, name) == fields[name].default}
        document = self.model_dump(mode="json", exclude={"format", *absent})
        written = {
            name: canonical_json(value).decode() if name in (*_JSON, *_NUMBERS, *_OPTIONAL_JSON) else value
            for name, value in document.items()
        }
        return {FORMAT: "1", **written}

    def require_not_adapted(self) -> None:
        """Raise TensorError `wrong-metadata` for a file that was fitted to a hospital's patients without noise."""
        if self.adapted_from is not None:
            raise TensorError(
                "wrong-metadata",
                f"this model is adapted to a hospital's own patients without noise, and must stay there: take the "
                f"released one, with SHA-256 {self.adapted_from}",
            )

    def require(self, study: str, settings: StudySettings, round_number: int) -> None:
        """Check that the file is the model of that round, made under these settings.

        Raises:
            TensorError: `wrong-metadata`, naming what differs.
        """
        self.require_not_adapted()
        if self.mean_of:
            raise TensorError("wrong-metadata", "the file is the mean of several models, and no round released it")
        expected = ModelMetadata.of(study, settings, round_number, (self.ledger_entries, self.ledger_sha256))
        for name in ("study", "round", "settings_sha256", "task", "task_parameters", "columns", *_PART):
            if getattr(self, name) != getattr(expected, name):
                raise TensorError("wrong-metadata", f"the model's file says that it is of another {name}")
        if round_number == 0 and (self.ledger_entries, self.ledger_sha256) != (0, _EMPTY_LEDGER):
            raise TensorError("wrong-metadata", "an initial model's file names an entry of a ledger")


def _columns_of(parameters: Mapping[str, float | int | bool | str]) -> tuple[InputColumn, ...]:
    # By name, as the tasks order them.
    columns = sorted(item for item in parameters.items() if item[0].startswith(COLUMN))
    return tuple(InputColumn(name=key.removeprefix(COLUMN), encoding=value) for key, value in columns)
