"""Tables: the four forms of a column, the two tasks on them, and every way the data can be wrong."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from private_learning.gradients.layers import logistic
from private_learning.gradients.losses import ClassLoss
from private_learning.records import DataError, Table
from private_learning.tasks import TaskError, load

COLUMNS = {"column.age": "18..90", "column.chol": "100..400; missing=250", "column.thal": "3|6|7; missing"}
BASE = {"label": "sick", **COLUMNS}


def table(**columns: object) -> Table:
    data = {"age": [18.0, 54.0, 90.0], "chol": [100.0, np.nan, 400.0], "thal": [3, None, 7], "sick": [0, 1, 1]}
    return Table.of({**data, **columns})


def test_columns_are_scaled_by_the_public_range_in_the_order_of_their_names():
    dataset = load("logistic-regression", BASE).dataset(table(extra=["not", "looked", "at"]))
    expected = [
        [-1, -1, 0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 1],
        [1, 1, 0, 0, 0, 1, 0],
    ]
    torch.testing.assert_close(dataset.inputs, torch.tensor(expected, dtype=torch.float32))
    assert dataset.targets.tolist() == [0, 1, 1]
    assert dataset.inputs.dtype == torch.float32
    assert dataset.targets.dtype == torch.int64
    assert dataset.patients == ("row-0", "row-1", "row-2")


def test_preprocessing_of_a_record_does_not_depend_on_the_others():
    task = load("logistic-regression", BASE)
    together = task.dataset(table()).inputs
    alone = [task.dataset(table().take([i])).inputs[0] for i in range(3)]
    assert torch.equal(together, torch.stack(alone))


def test_values_beyond_the_range_are_clipped_to_it():
    dataset = load("logistic-regression", {"label": "sick", "column.age": "18..90"}).dataset(table(age=[-5, 54, 1e308]))
    assert dataset.inputs[:, 0].tolist() == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("chol", "outside"),
    [
        ([5.2, 6.1, 4.9], "3 of 3"),
        ([5.2, np.nan, 300.0], None),
        ([5.2, np.nan, np.nan], "1 of 1"),
        ([5.2, 6.1, 300.0], "2 of 3"),
        ([np.nan] * 3, None),
    ],
)
def test_a_column_in_another_unit_is_a_warning(chol: list[float], outside: str | None):
    warnings = load("logistic-regression", BASE).warnings(table(chol=chol))
    assert len(warnings) == (outside is not None)
    assert all(f"column chol: {outside} values lie outside the study's range" in warning for warning in warnings)


@pytest.mark.parametrize("written", [["3.0", "6", "7"], [3.0, 6.0, 7.0], ["3", "6.0", " 7 "]])
def test_a_category_is_the_same_however_the_file_writes_it(written: list[object]):
    dataset = load("logistic-regression", {"label": "sick", "column.thal": "3|6|7"}).dataset(table(thal=written))
    assert dataset.inputs.tolist() == np.eye(3).tolist()


def test_one_logit_for_two_classes_and_one_per_class_beyond():
    two, three = load("logistic-regression", BASE), load("logistic-regression", {**BASE, "classes": 3})
    assert sum(p.numel() for p in two.model().parameters()) == 7 + 1
    assert sum(p.numel() for p in three.model().parameters()) == 3 * (7 + 1)
    assert all(bool((p == 0).all()) for p in three.model().parameters())


def test_perceptron_has_the_layers_it_was_asked_for():
    model = load("mlp", {**BASE, "hidden": 5, "layers": 2}).model()
    shapes = [tuple(p.shape) for p in model.parameters()]
    assert shapes == [(5, 7), (5,), (5, 5), (5,), (1, 5), (1,)]


def test_full_gradient_descent_finds_what_scikit_learn_finds():
    random = np.random.default_rng(3)
    x = random.uniform(-1, 1, (400, 2))
    y = (random.uniform(size=400) < 1 / (1 + np.exp(-(2 * x[:, 0] - x[:, 1] + 0.5)))).astype(int)
    task = load("logistic-regression", {"label": "y", "column.a": "-1..1", "column.b": "-1..1"})
    dataset = task.dataset(Table.of({"a": x[:, 0], "b": x[:, 1], "y": y}))
    model = task.model()
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = task.loss(model(dataset.inputs), dataset.targets).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    reference = LogisticRegression(C=np.inf, tol=1e-10).fit(x, y)
    found = torch.cat([p.flatten() for p in model.parameters()]).detach().numpy()
    np.testing.assert_allclose(found, [*reference.coef_[0], reference.intercept_[0]], atol=1e-3)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"age": [1.0, np.nan, 3.0]}, "column age: 1 of 3 values are missing"),
        ({"age": [1.0, np.inf, 3.0]}, "column age: 1 of 3 values .* an infinity"),
        ({"chol": [np.inf, -np.inf, 3.0]}, "column chol: 2 of 3 values .* an infinity"),
        ({"age": ["x", "y", "z"]}, "column age: 3 of 3 values are no numbers"),
        ({"thal": [3, 4, 5]}, "column thal: 2 of 3 values are none"),
        ({"sick": [0, 1, 2]}, "label column sick: 1 of 3"),
        ({"sick": [0, 0.5, -1]}, "label column sick: 2 of 3"),
        ({"sick": [0, 1, np.nan]}, "label column sick: 1 of 3"),
        ({"sick": [0, 1, np.inf]}, "label column sick: 1 of 3"),
        ({"sick": ["no", "yes", "yes"]}, "label column sick: 3 of 3 are not whole numbers"),
    ],
)
def test_bad_values_are_named_by_column_and_never_quoted(columns: dict[str, object], message: str):
    with pytest.raises(DataError, match=message):
        load("logistic-regression", BASE).dataset(table(**columns))


def test_missing_categories_are_refused_where_the_study_allows_none():
    with pytest.raises(DataError, match=r"column thal: 1 of . values are missing"):
        load("logistic-regression", {"label": "sick", "column.thal": "3|6|7"}).dataset(table())


@pytest.mark.parametrize("gone", ["age", "sick"])
def test_a_lacking_column_is_named(gone: str):
    data = table()
    lacking = Table({name: column for name, column in data.columns.items() if name != gone}, data.patients)
    with pytest.raises(DataError, match=gone):
        load("logistic-regression", BASE).dataset(lacking)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"label": "y"}, "at least one parameter column"),
        (COLUMNS, "label"),
        ({**BASE, "lable": "y"}, "lable"),
        ({**BASE, "classes": 1}, "classes"),
        ({**BASE, "classes": 2.5}, "classes"),
        ({**BASE, "classes": True}, "classes"),
        ({**BASE, "hidden": 3}, "hidden"),
        ({**BASE, "column.x": 3}, "column.x"),
        ({**BASE, "column.": "0..1"}, "column."),
        ({**BASE, "column.x": "1..1"}, "empty"),
        ({**BASE, "column.x": "nan..1"}, "finite"),
        ({**BASE, "column.x": "0..inf"}, "finite"),
        ({**BASE, "column.x": "0..ten"}, "not a number"),
        ({**BASE, "column.x": "0..1; missing=2"}, "outside the range"),
        ({**BASE, "column.x": "0..1; else=0"}, "'else=0': behind ';' may stand, once each: missing, missing-values"),
        ({**BASE, "column.x": "a"}, "two or more"),
        ({**BASE, "column.x": "1|1.0"}, "two or more different"),
        ({**BASE, "column.x": "a||b"}, "two or more different"),
        ({**BASE, "column.x": "0..1; missing"}, "is not a number"),
        ({**BASE, "column.x": "0..1; missing=0; missing=1"}, "once each"),
        ({**BASE, "column.x": "0..1; missing-values=9"}, "needs 'missing'"),
        ({**BASE, "column.x": "0..1; missing=0; missing-values=9||8"}, "different values with bars between"),
        ({**BASE, "column.x": "a|b; missing; missing-values=b"}, "also one of the missing-values"),
        ({**BASE, "label-values": "no"}, "two or more different words"),
        ({**BASE, "label-values": "no|no"}, "two or more different words"),
        ({**BASE, "label-values": "no|yes", "classes": 3}, "names 2 classes, classes says 3"),
        ({**BASE, "label_values": "no|yes"}, "Did you mean label-values"),
        ({**BASE, "column.x": "a|b; missing=a"}, "write 'missing' without a value"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, object], message: str):
    with pytest.raises(TaskError, match=message.replace(".", r"\.")):
        load("logistic-regression", parameters)


def test_labels_may_be_words_in_the_order_of_their_classes() -> None:
    task = load("mlp", {**BASE, "label-values": "no| yes |maybe"})
    assert task.dataset(table(sick=["yes", "no", "maybe "])).targets.tolist() == [1, 0, 2]
    assert task.model()(task.dataset(table(sick=["no"] * 3)).inputs).shape == (3, 3)
    turned = load("mlp", {**BASE, "label-values": "1|0"})
    assert turned.dataset(table(sick=[0, 1, 1])).targets.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (
            ["no", "Yes", "yes"],
            "label column sick: 1 of 3 values are none .*label-values no.yes, the first in row 2",
        ),
        (["no", "yes", None], "label column sick: 1 of 3 are missing: leave these rows out, the first in row 3"),
    ],
    ids=["another word", "missing"],
)
def test_labels_that_are_none_of_the_words_are_counted(labels: list[object], words: str) -> None:
    with pytest.raises(DataError, match=words):
        load("mlp", {**BASE, "label-values": "no|yes"}).dataset(table(sick=labels))


def test_a_classifier_trains_with_the_loss_that_its_parameters_name() -> None:
    assert load("logistic-regression", BASE).loss is logistic
    focal = load("logistic-regression", {**BASE, "loss": "focal"})
    assert focal.loss == ClassLoss(2.0)
    weighted = load("mlp", {**BASE, "classes": 3, "class-weights": "1|0.5|4", "loss": "focal", "gamma": 3})
    assert weighted.loss == ClassLoss(3.0, (1.0, 0.5, 4.0))
    # Its numbers are those of any other classifier.
    scores, labels = torch.tensor([[0.3], [-2.0]]), torch.tensor([1, 0])
    assert focal.metrics(scores, labels) == load("logistic-regression", BASE).metrics(scores, labels)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"gamma": 2.0}, "gamma belongs to"),
        ({"loss": "focal", "gamma": 0.5}, "gamma"),
        ({"loss": "hinge"}, "loss"),
        ({"class-weights": "1|2|3"}, "class-weights must be 2 numbers"),
        ({"class-weights": "1|0"}, "class-weights must be 2 numbers"),
        ({"class-weights": "1|nan"}, "class-weights must be 2 numbers"),
        ({"class-weights": "1|many"}, "class-weights must be 2 numbers"),
    ],
)
def test_a_loss_that_is_none_is_refused(parameters: dict[str, object], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        load("logistic-regression", BASE | parameters)


def test_the_bayesian_task_has_its_own_loss() -> None:
    with pytest.raises(TaskError, match="loss"):
        load("bayesian-logistic-regression", {**BASE, "patients": 10, "prior-std": 1.0, "loss": "focal"})
