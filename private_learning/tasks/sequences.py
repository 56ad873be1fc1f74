"""A classifier of patients by the codes of their events, in their order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.records import DataError, Records, Table
from private_learning.records.histories import Histories
from private_learning.tasks.columns import PREFIX, categories_of, encode_columns, read_columns, require_no_label
from private_learning.tasks.events import PREFIX as EVENTS
from private_learning.tasks.events import read_events, sequences, uses
from private_learning.tasks.lacking import with_lacking
from private_learning.tasks.tables import ClassifierParameters, TableClassifier
from private_learning.tasks.task import InputUse
from private_learning.tasks.weights import even, uniform
from study_protocol.wire.tensors import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

# Gates of a unit, which torch stacks in one weight.
_GATES = {"gru": 3, "lstm": 4}


class SequenceParameters(ClassifierParameters):
    """Those of a classifier of patients, and the shape of the model. Beside these: events.<table>, column.<name>."""

    length: int = Field(ge=1, le=10_000, description="the newest events of a patient that are used, at most")
    model: Literal["gru", "lstm", "transformer"] = Field(
        default="gru", description="gru and lstm read event by event. A transformer reads all of them at once"
    )
    embedding: int = Field(default=32, ge=1, le=4096, description="numbers that stand for a code")
    hidden: int = Field(
        default=64, ge=1, le=65_536, description="units of gru and lstm, and of a transformer's inner layer"
    )
    layers: int = Field(default=1, ge=1, le=16, description="one after the other")
    heads: int = Field(default=4, ge=1, le=64, description="of a transformer, a divisor of embedding")

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.model == "transformer" and self.embedding % self.heads:
            raise ValueError(f"embedding ({self.embedding}) must be a multiple of heads ({self.heads})")
        if self.model != "transformer" and "heads" in self.model_fields_set:
            raise ValueError('heads belongs to model = "transformer": leave it out')
        return self


class CodeSequences(TableClassifier[SequenceParameters]):
    """One sequence of tokens for each patient, and perhaps columns of the table of patients beside it."""

    name, kind = "sequence", SequenceParameters

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        settings = {key: value for key, value in parameters.items() if not key.startswith((PREFIX, EVENTS))}
        self.parameters = self.kind.read(self.name, settings)
        self.events = read_events(parameters)
        self.target_columns = self.parameters.targets
        has_columns = any(key.startswith(PREFIX) for key in parameters)
        self.columns = read_columns(parameters) if has_columns else ()
        require_no_label(self.columns, self.target_columns)
        self.features = sum(column.width for column in self.columns)
        words = self.parameters.label_values
        self.label_values = None if words is None else categories_of(words)
        self.classes = self.parameters.classes if self.label_values is None else len(self.label_values)
        self.gamma, self.class_weights = self.parameters.loss_settings(self.name, self.classes)

    @property
    def tokens(self) -> int:
        """How many there are, 0 for none among them."""
        return self.events[-1].first + self.events[-1].tokens

    def model(self) -> nn.Module:
        from private_learning.tasks.sequence_models import Recurrent, Transformer

        p = self.parameters
        if p.model == "transformer":
            return Transformer(
                self.tokens, self.features, p.length, p.embedding, p.heads, p.hidden, p.layers, self.outputs
            )
        return Recurrent(p.model, self.tokens, self.features, p.embedding, p.hidden, p.layers, self.outputs)

    def inputs(self, data: Records) -> Tensor:
        """(n, features + length) float32: the patient's own numbers, then whole numbers of tokens."""
        import torch

        histories = self._table(data)
        static = np.zeros((len(histories), 0))
        if self.columns:
            static = encode_columns(self.columns, histories.columns, histories.first)
        tokens = sequences(self.events, histories, self.parameters.length)
        return torch.as_tensor(np.concatenate([static, tokens], axis=1)).float()

    def inspect(self, data: Records) -> tuple[InputUse, ...]:
        histories = self._table(data)
        return super().inspect(data) + uses(self.events, histories)

    def example_inputs(self, count: int, generator: np.random.Generator) -> Tensor:
        import torch

        length = self.parameters.length
        encoded = [column.encode(column.random(count, generator)) for column in self.columns]
        tokens = generator.integers(1, self.tokens, (count, length))
        ends = generator.integers(0, length + 1, (count, 1))
        encoded.append(np.where(np.arange(length) < ends, tokens, 0))
        return torch.as_tensor(np.concatenate(encoded, axis=1)).float()

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        p = self.parameters
        weights = {"embed.weight": _normal((self.tokens, p.embedding), random)}
        # The row of no event stays zero: no gradient reaches it.
        weights["embed.weight"][0] = 0.0
        weights |= _encoder(p, random) if p.model == "transformer" else _recurrent(p, random)
        state = p.embedding if p.model == "transformer" else p.hidden
        return weights | uniform({"head": (self.outputs, state + self.features)}, random)

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {
            "label": "died",
            "label-values": "no|yes",
            "length": 50,
            "events.diagnoses": "code=icd; time=day; codes=I10|E11|N18|J44",
            "events.drugs": "code=atc; time=day; codes=C07|A10|B01",
            "column.age": "18..90",
            "column.sex": "f|m",
        }

    def synthetic_records(self, count: int, seed: int = 0) -> Histories:
        """Return random histories. Some patients have no event. Many of the first code lead to a higher class."""
        draw, patients = np.random.default_rng(seed), [f"p{k}" for k in range(count)]
        events: dict[str, Table] = {}
        hits = np.zeros(count)
        for table in self.events:
            owners: list[int] = draw.integers(0, count, 6 * count).tolist()
            codes = draw.choice([*table.codes, "something else"], len(owners))
            hits += np.bincount(owners, codes == table.codes[0], minlength=count)
            times, names = draw.uniform(0, 365, len(owners)), [patients[k] for k in owners]
            events[table.name] = Table.of(
                {table.code: codes, table.time: times, "patient": names}, patient_column="patient"
            )
        labels = np.argsort(np.argsort(hits + 1e-3 * draw.normal(size=count))) * self.classes // count
        declared = {column.name: column.random(count, draw) for column in self.columns}
        columns = declared | {self.parameters.label: self.label_cells(labels), "patient": patients}
        return Histories.with_events(Table.of(columns, patient_column="patient"), events)

    def _table(self, data: Records) -> Histories:
        if not isinstance(data, Histories):
            raise DataError(
                f"task {self.name} takes a folder of tables: patients.csv with one row for each patient, and one table "
                "for each kind of events"
            )
        return with_lacking(self.columns, data)


def _recurrent(p: SequenceParameters, random: np.random.Generator) -> dict[str, Array]:
    bound = 1 / math.sqrt(p.hidden)
    rows, weights = _GATES[p.model] * p.hidden, dict[str, Array]()
    for layer in range(p.layers):
        wide = p.hidden if layer else p.embedding
        shapes = {"weight_ih": (rows, wide), "weight_hh": (rows, p.hidden), "bias_ih": (rows,), "bias_hh": (rows,)}
        weights |= {f"units.{kind}_l{layer}": even(shape, bound, random) for kind, shape in shapes.items()}
    return weights


def _encoder(p: SequenceParameters, random: np.random.Generator) -> dict[str, Array]:
    wide = p.embedding
    weights = {"places.weight": _normal((p.length, wide), random)}
    for layer in range(p.layers):
        at = f"units.layers.{layer}"
        # Glorot and Bengio 2010, over the three maps together.
        weights[f"{at}.self_attn.in_proj_weight"] = even((3 * wide, wide), math.sqrt(6 / (4 * wide)), random)
        weights[f"{at}.self_attn.in_proj_bias"] = np.zeros(3 * wide, np.float32)
        weights |= uniform({f"{at}.self_attn.out_proj": (wide, wide)}, random)
        weights[f"{at}.self_attn.out_proj.bias"] = np.zeros(wide, np.float32)
        weights |= uniform({f"{at}.linear1": (p.hidden, wide), f"{at}.linear2": (wide, p.hidden)}, random)
        for norm in ("norm1", "norm2"):
            weights[f"{at}.{norm}.weight"] = np.ones(wide, np.float32)
            weights[f"{at}.{norm}.bias"] = np.zeros(wide, np.float32)
    return weights


def _normal(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    return random.standard_normal(shape).astype(np.float32)
