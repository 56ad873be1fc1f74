"""Which parameters a study trains, and where the others have their values from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from client_sdk.errors import ConfigurationError
from private_learning.gradients import PerRecordGradients
from private_learning.gradients.inspection import known_layers, trainable
from private_learning.tasks import Task, load, of_study
from private_learning.tasks.adapters import LowRank, adapt, merge
from private_learning.tasks.registry import EXAMPLES, load_part
from study_protocol.study.bounds import MAX_WEIGHT
from study_protocol.study.training import Training
from tests.factories.parts import CNN, Backbone, Fixed, backbone

Change = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def part(trainable: Any, file: Backbone, task: Task | None = None) -> nn.Module:
    return load_part(task or load("cnn", CNN), "cnn", trainable, file.sha256, file.path).model()


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("head", {"7.weight", "7.bias"}),
        (("5.*", "7.*"), {"5.weight", "5.bias", "7.weight", "7.bias"}),
        (("*.bias",), {"0.bias", "2.bias", "5.bias", "7.bias"}),
        (
            "lora:2",
            {*(f"{layer}.{which}.weight" for layer in "025" for which in ("down", "up")), "7.weight", "7.bias"},
        ),
    ],
    ids=["head", "two layers", "all biases", "rank 2"],
)
def test_the_part_alone_is_trained_and_the_rest_comes_from_the_file(
    tmp_path: Path, wanted: Any, names: set[str]
) -> None:
    file = backbone(tmp_path)
    model = part(wanted, file)
    assert set(trainable(model)) == names
    frozen = {name.replace(".base", ""): p for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen
    assert all(torch.equal(p, file.tensors[name]) for name, p in frozen.items())


def test_all_is_the_task_as_it_is_and_its_settings_keep_their_digest() -> None:
    given = {"task": "cnn", "task_parameters": CNN, "algorithm": "fedsgd", "local_steps": 1}
    chosen = Training.model_validate(given)
    assert not {"trainable", "backbone"} & set(chosen.model_dump(mode="json"))
    assert all(p.requires_grad for p in of_study(chosen).model().parameters())


@pytest.mark.parametrize("wanted", ["lora:0", "lora:", "heads", "lora:8x", [], ["a"] * 65])
def test_what_names_no_part_is_refused(wanted: Any) -> None:
    given = {"task": "cnn", "algorithm": "fedsgd", "local_steps": 1, "trainable": wanted}
    with pytest.raises(ValueError, match=r"trainable"):
        Training.model_validate(given)


def test_new_views_in_every_step_and_features_that_are_computed_once_do_not_go_together() -> None:
    given = {"task": "cnn", "task_parameters": CNN, "algorithm": "fedsgd", "local_steps": 1}
    views = {"augmentation": {"views": 4, "shift": 1}}
    with pytest.raises(ValueError, match="name the head's parameters by patterns"):
        Training.model_validate(given | views | {"trainable": "head"})
    Training.model_validate(given | views | {"trainable": ["7.*"]})
    features = {"task": "features", "task_parameters": dict(EXAMPLES["features"])}
    with pytest.raises(ConfigurationError, match=r"leave training\.augmentation out"):
        of_study(Training.model_validate(given | views | features))


def test_the_first_model_with_adapters_is_the_frozen_one(tmp_path: Path) -> None:
    file = backbone(tmp_path)
    adapted, inputs = part("lora:2", file), torch.randn(5, 1, 8, 8)
    whole = load("cnn", CNN).model()
    whole.load_state_dict(file.tensors)
    assert torch.equal(adapted(inputs), whole(inputs))


def _moved(model: nn.Module, seed: int = 0) -> nn.Module:
    """As after some training: no adapter is zero."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in trainable(model).values():
            p.copy_(0.3 * torch.randn(p.shape, generator=draw))
    return model


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(6, 5), (6,)),
    "linear over places": (nn.Linear(6, 5), (3, 6)),
    "convolution": (nn.Conv2d(3, 4, 3, stride=2, padding=1, dilation=2), (3, 9, 9)),
    "padding same": (nn.Conv2d(3, 4, 3, padding="same", padding_mode="circular"), (3, 7, 7)),
    "signals": (nn.Conv1d(2, 5, 3, stride=2), (2, 11)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_merged_layer_is_the_same_function_of_its_inputs(name: str) -> None:
    layer, shape = LAYERS[name]
    model = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.LazyLinear(2)).double()
    inputs = torch.randn(4, *shape, dtype=torch.float64)
    model(inputs)
    adapt(model, 2, "3")
    _moved(model)
    expected = model(inputs)
    merged = merge(model)
    assert not any(isinstance(module, LowRank) for module in merged.modules())
    torch.testing.assert_close(merged(inputs), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_adapters_agree_with_one_backward_for_each_record(name: str) -> None:
    layer, shape = LAYERS[name]
    model = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.LazyLinear(2)).double()
    inputs, targets = torch.randn(6, *shape, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1, 0])
    model(inputs)
    adapt(model, 2, "3")
    _moved(model)
    # Every trained layer has a closed form: nothing is done record by record.
    assert len(known_layers(model)) == 3
    loss = nn.CrossEntropyLoss(reduction="none")
    alone: list[float] = []
    for one in range(len(inputs)):
        model.zero_grad()
        loss(model(inputs[one : one + 1]), targets[one : one + 1]).sum().backward()
        alone.append(
            torch.cat([p.grad.flatten() for p in trainable(model).values() if p.grad is not None]).norm().item()
        )
    norms = PerRecordGradients(model, loss).norms(inputs, targets)
    torch.testing.assert_close(norms.double(), torch.tensor(alone, dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_the_head_is_the_last_module_with_parameters_or_what_the_task_names(tmp_path: Path) -> None:
    task = load("cnn", CNN)
    vars(task)["head"] = "5"
    assert set(trainable(part("head", backbone(tmp_path), task))) == {"5.weight", "5.bias"}
    vars(task)["head"] = "nowhere"
    with pytest.raises(ConfigurationError, match="'nowhere' as its head"):
        part("head", backbone(tmp_path), task)


def test_a_head_for_other_classes_and_one_that_the_file_lacks_begin_as_the_task_makes_them(tmp_path: Path) -> None:
    for change in ({"7.weight": torch.ones(9, 4), "7.bias": torch.ones(9)}, {"7.weight": None, "7.bias": None}):
        model = part("head", backbone(tmp_path, change))
        assert {name: p.shape for name, p in trainable(model).items()} == {
            "7.weight": torch.Size([3, 4]),
            "7.bias": torch.Size([3]),
        }


@pytest.mark.parametrize(
    ("wanted", "change", "text"),
    [
        (
            "head",
            {"5.weight": torch.ones(4, 3)},
            r"'5.weight' has shape \(4, 3\), and the task's model needs \(4, 16\)",
        ),
        ("head", {"5.weight": None}, "no tensor '5.weight', which the study does not train"),
        ("head", {"0.bias": torch.full((2,), torch.nan)}, "'0.bias' holds NaN"),
        ("head", {"0.bias": torch.full((2,), -torch.inf)}, "'0.bias' holds NaN or a number beyond"),
        ("head", {"0.bias": torch.full((2,), -MAX_WEIGHT - 128)}, "'0.bias' holds NaN or a number beyond"),
        ("head", {"7.weight": torch.full((3, 4), 2 * MAX_WEIGHT)}, "'7.weight' holds NaN or a number beyond"),
        ("head", {"unused": torch.full((1,), 2.0**31, dtype=torch.float64)}, "'unused' holds NaN or a number beyond"),
        ("head", {"0.bias": torch.full((2,), 1 << 40)}, "'0.bias' holds NaN or a number beyond"),
        ("head", {"0.bias": torch.full((2,), torch.nan).to(torch.float8_e5m2)}, "'0.bias' holds NaN"),
        ("head", {"0.bias": torch.full((2,), torch.nan, dtype=torch.complex64)}, "'0.bias' holds complex numbers"),
        (("5.*",), {"5.weight": torch.ones(4, 3)}, "'5.weight' has shape"),
        (("fc.*",), {}, "no parameter of the task's model is called 'fc.*'. Some that exist"),
        ("lora:5", {}, "layer '0' has a matrix of 2 × 9, whose rank is at most 2: take lora:2 or less"),
        ("all", {}, "say which part is"),
    ],
    ids=[
        *("other shape", "absent", "NaN", "infinite", "beyond the bound", "head beyond the bound", "unused beyond it"),
        *("whole beyond it", "NaN in 8 bits", "complex"),
        *("other shape of what is trained", "no match", "rank too large", "no part"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, wanted: Any, change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        part(wanted, backbone(tmp_path, change))


def test_public_weights_at_the_bound_are_taken(tmp_path: Path) -> None:
    file = backbone(tmp_path, {"0.bias": torch.tensor([MAX_WEIGHT, -MAX_WEIGHT])})
    assert dict(part("head", file).named_parameters())["0.bias"].tolist() == [MAX_WEIGHT, -MAX_WEIGHT]


def test_the_file_is_believed_by_its_digest_alone(tmp_path: Path) -> None:
    file = backbone(tmp_path)
    task = load("cnn", CNN)
    with pytest.raises(ConfigurationError, match="give it with --backbone FILE"):
        load_part(task, "cnn", "head", file.sha256, None)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_part(task, "cnn", "head", file.sha256, tmp_path / "nowhere")
    other = tmp_path / "other.safetensors"
    save_file({name: tensor + 1 for name, tensor in file.tensors.items()}, other)
    with pytest.raises(ConfigurationError, match="is not the file that the study names"):
        load_part(task, "cnn", "head", file.sha256, other)
    pickled = tmp_path / "weights.pt"
    torch.save(file.tensors, pickled)
    with pytest.raises(ConfigurationError, match="no safetensors file: pickled weights"):
        load_part(task, "cnn", "head", hashlib.sha256(pickled.read_bytes()).hexdigest(), pickled)


@pytest.mark.parametrize("wanted", ["head", "lora:2", ("7.*",)])
def test_without_a_file_what_is_not_trained_must_be_the_same_whenever_it_is_made(wanted: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'0.*weight' is not trained, and the task draws it anew"):
        load_part(load("cnn", CNN), "cnn", wanted, None, None)
    fixed = load_part(Fixed(), "fixed", wanted, None, None)
    assert torch.equal(*(dict(fixed.model().named_parameters())[_frozen(wanted)] for _ in range(2)))


def _frozen(wanted: Any) -> str:
    return "0.base.weight" if wanted == "lora:2" else "0.weight"


def test_layers_inside_attention_take_no_adapter_and_a_model_of_them_alone_is_refused() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.raises(ConfigurationError, match="no linear layer or convolution"):
        adapt(nn.Sequential(layer, nn.Linear(8, 2)), 2, "1")
    model = nn.Sequential(nn.Linear(5, 8), layer, nn.Linear(8, 2))
    adapt(model, 2, "2")
    assert set(trainable(model)) == {"0.down.weight", "0.up.weight", "2.weight", "2.bias"}
    assert model.eval()(torch.randn(3, 4, 5)).shape == (3, 4, 2)


def test_a_frozen_batch_normalisation_of_the_file_keeps_records_apart(tmp_path: Path) -> None:
    class Normalised(Fixed):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))

    first = Normalised().model()
    first[1].running_mean.fill_(0.5)  # type: ignore[union-attr,index]
    path = tmp_path / "public.safetensors"
    save_file(first.state_dict(), path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    for wanted in ("head", "lora:2"):
        model = load_part(Normalised(), "normalised", wanted, sha256, path).model().eval()
        assert torch.equal(dict(model.named_buffers())["1.running_mean"], torch.full((4,), 0.5))
        PerRecordGradients(model, nn.CrossEntropyLoss(reduction="none")).norms(
            torch.randn(3, 1, 8, 8), torch.tensor([0, 1, 2])
        )
