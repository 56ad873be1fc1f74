"""Training on inputs that are read on demand gives the bytes of training in memory, and holds few of them."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.guard.individual import IndividualBudget
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.policy_limits import IndividualLimit
from private_learning.records import DataError, Examples, LazyExamples, LazyTable
from private_learning.records import load as load_records
from private_learning.records.lazy import ReadBy
from private_learning.records.records import Array
from private_learning.tasks import Task, dataset_of, load
from private_learning.tasks.inputs import LazyInputs
from private_learning.training import LocalTraining, prefetch
from private_learning.training.prefetch import Batch, PrefetchedBatches
from private_learning.training.weights import weights_of
from study_protocol.randomness.source import Purpose, SeededRandomness
from study_protocol.study.settings import StudySettings
from tests.factories.readers import Dying, Images, Plain
from tests.factories.settings import settings

TASK = load("last-layer", {"features": 36, "classes": 3, "bound": 300.0})
CNN = load("cnn", {"height": 6, "width": 6, "classes": 3, "filters": 2, "hidden": 4})
RECORDS = 300
_DRAW = np.random.default_rng(5)
PATIENTS = [f"p{row // 2}" for row in range(RECORDS)]
FEATURES = Examples.of(_DRAW.integers(0, 256, (RECORDS, 36)).astype(np.uint8), _DRAW.integers(0, 3, RECORDS), PATIENTS)
IMAGES = Examples.of(FEATURES.inputs.reshape(-1, 6, 6), FEATURES.labels, PATIENTS)
STEPS = {"algorithm": "fedavg", "local_steps": 3, "learning_rate": 0.1}
PLANS: dict[str, dict[str, Any]] = {
    "parallel": {},
    "sequential": {},
    "joint": {},
    "client": {"training": STEPS},
    "several-steps": {"scheme": "parallel", "training": STEPS},
    "bayesian": {"scheme": "parallel", "training": STEPS, "bayesian": True},
    "held-out-sample": {
        "scheme": "parallel",
        "training": STEPS,
        "bayesian": True,
        "accounting_sample": {"records": 20, "source": "held-out"},
    },
    "per-layer": {"scheme": "parallel", "training": STEPS | {"clipping": "per-layer"}},
}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def lazily(reader: Any = None, read_by: ReadBy = "threads") -> LazyExamples:
    return LazyExamples.of(reader or Images(FEATURES.inputs), FEATURES.labels, FEATURES.patients, read_by=read_by)


def training(data: Any, chosen: StudySettings, rows: int = 2, task: Task = TASK) -> LocalTraining:
    dataset = dataset_of(task, data).by_patient(rows)
    return LocalTraining(task, dataset, chosen, SeededRandomness(3, allow_insecure=True))


def study(name: str, **more: Any) -> StudySettings:
    plan = PLANS[name] | more
    values = {"expected_batch_size": 60.0, "sampling_rate": 0.4, "noise_multiplier": 1.0, "max_steps": 6} | plan
    return settings(values.pop("scheme", name), **values)


def released(local: LocalTraining) -> list[bytes]:
    """The update and everything that was charged for it."""
    chosen = local.settings
    weights = {
        name: np.random.default_rng(1).normal(0, 0.3, array.shape).astype(np.float32)
        for name, array in weights_of(local.task.model()).items()
    }
    bounds = LogMomentBounds.open(
        chosen,
        local.dataset.patients,
        None,
        rounds_lost=0,
        source=local.randomness_in(0).of(Purpose.ACCOUNTING_SAMPLE),
    )
    made = local.contribution(weights, bounds)
    found = [array.tobytes() for _, array in sorted(made.update.items())]
    return [*found, repr(made.client_distance).encode(), b"" if bounds is None else bounds.to_bytes()]


@pytest.mark.quick("client", "joint", "parallel", "sequential")
@pytest.mark.parametrize("name", PLANS)
def test_records_read_on_demand_give_the_bytes_of_records_in_memory(name: str) -> None:
    chosen = study(name)
    reader = Images(FEATURES.inputs, pauses=True)
    assert released(training(lazily(reader), chosen)) == released(training(FEATURES, chosen))
    assert len(reader.threads) > 1


@pytest.mark.quick("client", "parallel")
@pytest.mark.parametrize("name", PLANS)
def test_a_table_read_by_row_groups_gives_the_bytes_of_one_in_memory(tmp_path: Path, name: str) -> None:
    pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    columns = {f"x{place}": FEATURES.inputs[:, place] for place in range(6)}
    table = {**columns, "ill": FEATURES.labels, "who": PATIENTS}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet", row_group_size=23)
    task = load("mlp", {"label": "ill", "classes": 3, "hidden": 4} | {f"column.{name}": "0..255" for name in columns})
    here, there = (load_records(tmp_path / "a.parquet", patient_column="who", lazy=lazy) for lazy in (False, True))
    assert isinstance(there, LazyTable)
    chosen = study(name)
    assert released(training(there, chosen, task=task)) == released(training(here, chosen, task=task))


@pytest.mark.quick("caller")
@pytest.mark.parametrize("read_by", ["caller", "processes"])
def test_who_reads_changes_no_byte(read_by: ReadBy) -> None:
    chosen = study("several-steps")
    wanted = released(training(FEATURES, chosen))
    assert released(training(lazily(Plain(FEATURES.inputs), read_by), chosen)) == wanted


def test_images_of_patients_with_one_each_give_the_same_bytes() -> None:
    chosen = study("several-steps")
    own = Examples.of(IMAGES.inputs, IMAGES.labels)
    lazy = LazyExamples.of(Images(IMAGES.inputs), IMAGES.labels)
    assert released(training(lazy, chosen, 1, CNN)) == released(training(own, chosen, 1, CNN))


def test_patients_whose_limit_is_used_up_are_not_read() -> None:
    # Every gradient is longer than the clip norm, and a second step of it is more than the limit.
    chosen, spent = study("several-steps", sampling_rate=1.0, clip_norm=1e-3), []
    reader = Images(FEATURES.inputs)
    for data in (FEATURES, lazily(reader)):
        local = training(data, chosen)
        limit = IndividualLimit(epsilon=6.0, delta=1e-5, order=4.0)
        own = IndividualBudget.open(limit, None, local.dataset.patients, entries=0, sent_since=lambda _: [])
        reader.asked.clear()
        local.contribution(weights_of(TASK.model()), None, individual=own)
        spent.append(own.filter.state()["spent"])
    assert spent[0] == spent[1]
    # In the first step everybody once: the method was chosen without anybody's records.
    assert sum(map(len, reader.asked)) == RECORDS


def test_predictions_are_those_of_records_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = study("parallel")
    weights = weights_of(TASK.model())
    monkeypatch.setattr("private_learning.tasks.inputs.PART_BYTES", 50 * 36 * 4)
    data = [dataset_of(TASK, records) for records in (FEATURES, lazily())]
    found = [training(FEATURES, chosen).predictions(weights, dataset.inputs) for dataset in data]
    np.testing.assert_array_equal(found[0], found[1])


def test_no_more_is_held_than_the_pass_that_runs_and_what_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read and is not yet given out, at every moment."""
    monkeypatch.setattr(prefetch, "ROOM", 40 * 36 * 4)
    reader = Images(FEATURES.inputs)
    inputs = dataset_of(TASK, LazyExamples.of(reader, FEATURES.labels)).inputs
    assert isinstance(inputs, LazyInputs)
    reader.asked.clear()
    batches = PrefetchedBatches(inputs)
    rows, after = np.arange(0, 300, 2), np.arange(1, 300, 2)
    batch = batches.of(rows, lambda: after)
    assert not isinstance(batch, torch.Tensor)
    given = held = 0
    parts = [slice(start, start + 25) for start in range(0, 150, 25)]
    for place, part in enumerate(parts):
        if place == 0:
            batch.expect(part)
        if place + 1 < len(parts):
            batch.expect(parts[place + 1])
        assert torch.equal(batch[part], inputs[torch.as_tensor(rows[part])])
        given += 25
        # The comparison above reads 25 rows by itself.
        held = max(held, sum(map(len, reader.asked)) - 2 * given)
    assert held <= 40 + 40
    time.sleep(0.05)
    assert sum(map(len, reader.asked)) == 2 * given + 40
    following = batches.of(after, None)
    assert torch.equal(following[slice(0, 30)], inputs[torch.as_tensor(after[:30])])
    # Thirty of the forty that were read ahead were given out, and thirty read for the comparison.
    assert sum(map(len, reader.asked)) == 2 * given + 40 + 30


def test_a_record_that_vanished_stops_the_round_and_a_repetition_gives_its_bytes() -> None:
    chosen, reader = study("several-steps", bayesian=True), Images(FEATURES.inputs)
    wanted = released(training(FEATURES, chosen))
    local, gone = training(lazily(reader), chosen), np.zeros(0)
    bounds = LogMomentBounds(chosen, local.dataset.patients)
    before, reader.inputs = bounds.to_bytes(), gone
    with pytest.raises(DataError, match=r"records can no longer be read \(IndexError\)"):
        local.contribution(weights_of(TASK.model()), bounds)
    # Nothing was charged for the step.
    assert bounds.to_bytes() == before
    reader.inputs = FEATURES.inputs
    assert released(local) == wanted


def test_a_process_that_ends_is_named_and_another_is_started() -> None:
    chosen = study("several-steps")
    local = training(lazily(Dying(FEATURES.inputs, os.getpid()), "processes"), chosen)
    with pytest.raises(DataError, match="a process that reads records has ended"):
        local.contribution(weights_of(TASK.model()), None)


def test_a_reader_that_cannot_be_sent_to_a_process_is_refused() -> None:
    class Local(Plain):
        pass

    with pytest.raises(DataError, match="at the top of a module"):
        released(training(lazily(Local(FEATURES.inputs), "processes"), study("parallel")))


def test_a_round_over_many_records_never_holds_more_than_a_pass_and_twice_the_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2,000 records, steps of about 1,000: what has been read less what passes have taken, at every reading."""
    draw = np.random.default_rng(1)
    features = draw.normal(0, 1, (2000, 36)).astype(np.float32)
    monkeypatch.setattr(prefetch, "ROOM", 50 * features[0].nbytes)
    held, given, lock = [0], [0], threading.Lock()

    class Counted(Images):
        def read(self, rows: Array) -> Array:
            with lock:
                found = super().read(rows)
                held.append(sum(map(len, self.asked)) - given[0])
            return found

    take = Batch.__getitem__

    def taken(self: Batch, rows: Any) -> torch.Tensor:
        found = take(self, rows)
        with lock:
            given[0] += len(np.unique(self.rows[rows]))
        return found

    monkeypatch.setattr(Batch, "__getitem__", taken)
    reader = Counted(features)
    data = LazyExamples.of(reader, draw.integers(0, 3, 2000))
    chosen = study("several-steps", expected_batch_size=1000.0, sampling_rate=0.5)
    local = training(data, chosen, 1)
    reader.asked.clear()
    local.contribution(weights_of(TASK.model()), None)
    assert given[0] > 2500
    # A pass has up to 160 places.
    assert 0 < max(held) <= 160 + 2 * 50
