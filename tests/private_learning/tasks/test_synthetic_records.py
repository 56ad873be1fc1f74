"""Every built-in task makes records that it reads itself, the same for one seed."""

from __future__ import annotations

import numpy as np
import pytest

from private_learning.records import Examples, Histories, Table
from private_learning.tasks import Task
from private_learning.tasks.additive import AdditiveModel
from private_learning.tasks.arrays import LastLayer, SmallCnn
from private_learning.tasks.bayesian import BayesianLogisticRegression
from private_learning.tasks.multilabel import TableMultiLabel
from private_learning.tasks.on_module import ModuleFeatures
from private_learning.tasks.registry import BUILT_IN
from private_learning.tasks.regression import TableRegression
from private_learning.tasks.residual import ImageLabels, ResidualNetwork
from private_learning.tasks.segmentation import Segmentation
from private_learning.tasks.sequences import CodeSequences
from private_learning.tasks.signals import SignalNetwork
from private_learning.tasks.survival import DiscreteTime, PiecewiseConstant
from private_learning.tasks.tables import LogisticRegression, MultilayerPerceptron
from private_learning.tasks.vae import ClassAutoencoder

TABLES = (
    LogisticRegression,
    BayesianLogisticRegression,
    AdditiveModel,
    MultilayerPerceptron,
    TableRegression,
    TableMultiLabel,
)
ARRAYS = (
    SmallCnn,
    ResidualNetwork,
    ImageLabels,
    Segmentation,
    SignalNetwork,
    ClassAutoencoder,
    LastLayer,
    ModuleFeatures,
)
RECORDS: dict[type[Task], type[Table | Examples]] = {
    **dict.fromkeys((*TABLES, DiscreteTime, PiecewiseConstant), Table),
    **dict.fromkeys(ARRAYS, Examples),
    CodeSequences: Histories,
}


def test_every_built_in_task_is_among_the_cases() -> None:
    assert set(RECORDS) == set(BUILT_IN.values())


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_a_task_reads_the_records_that_it_makes(kind: type[Task]) -> None:
    task = BUILT_IN[kind.name](kind.example())
    first, again, other = (task.dataset(task.synthetic_records(21, seed)) for seed in (1, 1, 2))
    assert type(task.synthetic_records(1)) is RECORDS[kind]
    assert len(first) == len(set(first.patients)) == 21
    np.testing.assert_array_equal(first.inputs, again.inputs)
    np.testing.assert_array_equal(first.targets, again.targets)
    assert not np.array_equal(first.inputs, other.inputs)
    assert not np.array_equal(first.targets, other.targets)
