"""A stranger's program computes and does nothing else: attack files of every kind, each of which would leave a mark."""

from __future__ import annotations

import copy
import hashlib
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from client_sdk.errors import ConfigurationError
from private_learning.records import Examples
from private_learning.tasks import load
from private_learning.tasks.backbone_file import ProgramFile
from private_learning.tasks.program import Program
from private_learning.tasks.registry import load_part
from private_learning.training.features import Features
from tests.factories.programs import SIDES, layers, net, program, weights

OWN: dict[str, Any] = {"shape": "1x3x4", "features": 5, "classes": 2, "bound": 2.0, "high": 1.0}


def task_of(data: bytes, folder: Path) -> Any:
    path = folder / "program"
    path.write_bytes(data)
    return load_part(load("features", OWN), "features", "all", hashlib.sha256(data).hexdigest(), ProgramFile(path))


def records(count: int = 20) -> Examples:
    draw = np.random.default_rng(1)
    return Examples(
        draw.uniform(size=(count, 3, 4)), draw.integers(2, size=count), tuple(f"p{i}" for i in range(count))
    )


def test_a_program_gives_the_features_of_the_module_it_was_written_from(tmp_path: Path) -> None:
    task = task_of(program().SerializeToString(), tmp_path)
    features = Features.of(task)
    assert features is not None
    dataset = task.dataset(records())
    features.require(dataset)
    expected = net()(dataset.inputs).detach()
    expected = expected * (2 / expected.norm(dim=1, keepdim=True).clamp(min=2))
    torch.testing.assert_close(features.of_dataset(dataset).inputs, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_pytorch_exports_is_read(tmp_path: Path) -> None:
    shapes = ({0: torch.export.Dim("records")},)
    made = torch.onnx.export(net().eval(), (torch.zeros(2, *SIDES),), dynamo=True, dynamic_shapes=shapes, verbose=False)
    data = made.model_proto.SerializeToString()  # type: ignore[union-attr]
    inputs = torch.rand(7, *SIDES)
    torch.testing.assert_close(Program(data, SIDES)(inputs), net()(inputs).detach(), rtol=1e-5, atol=1e-6)


def test_a_program_cannot_mix_records() -> None:
    """Each record minus the mean over all records: one record at a time, that is zero for each."""
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("ReduceMean", ["flat", "axis"], ["mean"], keepdims=1),
        helper.make_node("Sub", ["flat", "mean"], ["y"]),
    ]
    axis = onnx.numpy_helper.from_array(np.array([0], np.int64), "axis")
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 12))
    made = Program(program(nodes, [axis], output=output).SerializeToString(), SIDES)
    assert torch.equal(made(torch.rand(6, *SIDES)), torch.zeros(6, 12))


def test_it_can_be_sent_to_another_process_and_copied() -> None:
    made, inputs = Program(program().SerializeToString(), SIDES), torch.rand(3, *SIDES)
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert torch.equal(other(inputs), made(inputs))


class Marks:
    """Unpickling it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def _exported() -> zipfile.ZipFile:
    written = io.BytesIO()
    shapes = ({0: torch.export.Dim("records")},)
    torch.export.save(torch.export.export(net(), (torch.zeros(2, *SIDES),), dynamic_shapes=shapes), written)
    return zipfile.ZipFile(written)


def _replaced(*names: str) -> Callable[[bytes], bytes]:
    """A program of torch.export in which members whose names end so hold a pickle."""

    def made(poison: bytes) -> bytes:
        old, written = _exported(), io.BytesIO()
        with zipfile.ZipFile(written, "w") as new:
            hits = 0
            for member in old.infolist():
                hit = member.filename.endswith(names)
                hits += hit
                new.writestr(member, poison if hit else old.read(member))
            assert hits
        return written.getvalue()

    return made


def _legacy(*names: str) -> Callable[[bytes], bytes]:
    """An archive as torch.export wrote it in its first versions, which `load` falls back to."""

    def made(poison: bytes) -> bytes:
        parts = {"serialized_exported_program.json": b"{}", "version": b"8.8"}
        parts |= dict.fromkeys(("serialized_state_dict.json", "serialized_constants.json"), b"")
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as new:
            for name, data in (parts | dict.fromkeys(names, poison)).items():
                new.writestr(name, data)
        return written.getvalue()

    return made


def _torch_saved(poison: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as new:
        new.writestr("archive/data.pkl", poison)
        new.writestr("archive/version", b"3\n")
        new.writestr("archive/byteorder", b"little")
    return written.getvalue()


def _hidden_behind_onnx(poison: bytes) -> bytes:
    """Valid protobuf bytes first, a zip archive at the end: two readers see two files."""
    return program().SerializeToString() + _torch_saved(poison)


def _text_in_the_graph(poison: bytes) -> bytes:
    """A whole program that is well, with a pickle where programs keep notes."""
    model = program()
    model.metadata_props.add(key="extra_files", value=poison.decode("latin-1"))
    return model.SerializeToString()


PICKLED = {
    "bare pickle": lambda poison: poison,
    "torch.save": _torch_saved,
    "weights": _replaced("weight_0", "weight_1"),
    "constants and samples": _replaced("model.pt"),
    "first version, state": _legacy("serialized_state_dict.json", "serialized_state_dict.pt"),
    "first version, constants": _legacy("serialized_constants.json", "serialized_constants.pt"),
    "first version, inputs": _legacy("serialized_example_inputs.pt"),
    "extra files": _legacy("extra_files/run.pkl"),
    "zip behind a graph": _hidden_behind_onnx,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", PICKLED)
def test_no_pickle_of_a_file_is_ever_read(tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "mark"
    data = PICKLED[kind](pickle.dumps(Marks(mark)))
    with pytest.raises(ConfigurationError, match="no ONNX file that can be run"):
        task_of(data, tmp_path)
    assert not mark.exists()


def test_a_pickle_in_a_note_stays_a_note(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    task_of(_text_in_the_graph(pickle.dumps(Marks(mark))), tmp_path).model()
    assert not mark.exists()


@pytest.mark.filterwarnings("ignore")
def test_torchscript_and_torch_export_are_refused_in_words(tmp_path: Path) -> None:
    written = io.BytesIO()
    torch.jit.save(torch.jit.trace(net(), torch.zeros(2, *SIDES)), written)
    old = _exported()
    assert old.fp is not None
    for data in (written.getvalue(), old.fp.getvalue()):  # type: ignore[attr-defined]
        with pytest.raises(ConfigurationError, match=r"torch\.onnx\.export"):
            task_of(data, tmp_path)


def _node(kind: str, given: list[str], **attributes: Any) -> list[Any]:
    return [helper.make_node(kind, given, ["y"], **attributes)]


def _function() -> Any:
    domains = [helper.make_opsetid("", 20)]
    made = helper.make_function("own", "Mine", ["a"], ["b"], [helper.make_node("Tanh", ["a"], ["b"])], domains)
    return program([helper.make_node("Mine", ["x"], ["y"], domain="own")], domains=("", "own"), functions=(made,))


def _branch() -> Any:
    value = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    inner = helper.make_graph([helper.make_node("Identity", ["x"], ["inner"])], "inner", [], [value])
    whether = onnx.numpy_helper.from_array(np.array(True), "whether")
    return program(_node("If", ["whether"], then_branch=inner, else_branch=inner), [whether])


def _loop() -> Any:
    names = ("i", "go", "a")
    kinds = (TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT)
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in (("on", kinds[1]), ("b", kinds[2]))]
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Tanh", ["a"], ["b"])]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    many = onnx.numpy_helper.from_array(np.array(1 << 60), "many")
    return program(_node("Loop", ["many", "", "x"], body=body), [many])


def _external() -> Any:
    model = program()
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    for key, value in (("location", "/etc/passwd"), ("offset", "0"), ("length", "240")):
        tensor.external_data.add(key=key, value=value)
    return model


def _external_constant() -> Any:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[5, 12], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="policy.toml")
    return program([helper.make_node("Constant", [], ["w"], value=tensor), *layers()], weights()[1:])


def _huge(shape: list[int]) -> Any:
    """A few hundred bytes that ask for memory."""
    sizes = onnx.numpy_helper.from_array(np.array(shape, np.int64), "sizes")
    nodes = [
        helper.make_node("ConstantOfShape", ["sizes"], ["much"]),
        helper.make_node("ReduceSum", ["much"], ["one"], keepdims=0),
        *layers()[:2],
        helper.make_node("Add", ["sums", "one"], ["y"]),
    ]
    return program(nodes, [*weights(), sizes])


def _size_of_the_record() -> Any:
    """As much memory as the record's own numbers say."""
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Reshape", ["flat", "all"], ["line"]),
        helper.make_node("Cast", ["line"], ["sizes"], to=TensorProto.INT64),
        helper.make_node("ConstantOfShape", ["sizes"], ["much"]),
        helper.make_node("ReduceSum", ["much"], ["y"], keepdims=0),
    ]
    return program(nodes, [onnx.numpy_helper.from_array(np.array([-1], np.int64), "all")])


def _texts() -> Any:
    """Texts double in each step; no shape tells how long they are."""
    nodes = [helper.make_node("Cast", ["x"], ["t0"], to=TensorProto.STRING)]
    nodes += [helper.make_node("StringConcat", [f"t{i}", f"t{i}"], [f"t{i + 1}"]) for i in range(40)]
    return program([*nodes, helper.make_node("Cast", ["t40"], ["y"], to=TensorProto.FLOAT)])


def _dropout() -> Any:
    numbers = [onnx.numpy_helper.from_array(np.array(v), n) for n, v in (("r", np.float32(0.5)), ("t", True))]
    return program(_node("Dropout", ["x", "r", "t"]), numbers)


def _sequence() -> Any:
    output = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    return program(_node("SequenceConstruct", ["x", "x"]), output=output)


def _sparse() -> Any:
    values, places = (
        helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0]),
        helper.make_tensor("i", TensorProto.INT64, [1], [1]),
    )
    model = program()
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [1 << 40]))
    return model


def _two_outputs() -> Any:
    model = program()
    model.graph.output.append(helper.make_tensor_value_info("sums", TensorProto.FLOAT, ("n", 5)))
    return model


def _training() -> Any:
    model = program()
    model.training_info.add()
    return model


def _divided(divisor: Any, kind: str = "Div") -> Any:
    """Whole numbers of the record divided by a constant, or a constant by them (None)."""
    least = onnx.numpy_helper.from_array(np.array(np.iinfo(np.int64).min if divisor is None else divisor), "c")
    return program(
        [
            helper.make_node("Flatten", ["x"], ["flat"]),
            helper.make_node("Cast", ["flat"], ["whole"], to=TensorProto.INT64),
            helper.make_node(kind, ["c", "whole"] if divisor is None else ["whole", "c"], ["quotient"]),
            helper.make_node("Cast", ["quotient"], ["y"], to=TensorProto.FLOAT),
        ],
        [least],
        output=helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 12)),
    )


def _side_below_zero() -> Any:
    model = _huge([1 << 16, 1 << 17])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0] * 3 + [-(1 << 40)] + [0] * 4), "pads"))
    model.graph.node.insert(0, helper.make_node("Pad", ["x", "pads"], ["less"]))
    return model


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "custom operator": (lambda: program(_node("X", ["x"]) and [helper.make_node("X", ["x"], ["y"], domain="my.ops")],
                                        domains=("", "my.ops")), "not of ONNX itself"),
    "operator of the runtime": (
        lambda: program([helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft")],
                        domains=("", "com.microsoft")), "not of ONNX itself"),
    "domain that is declared alone": (lambda: program(domains=("", "my.ops")), "not of ONNX itself"),
    "function": (_function, "not of ONNX itself"),
    "branch": (_branch, "loops, branches"),
    "loop": (_loop, "loops, branches"),
    "numbers in a file": (_external, "in other files"),
    "constant in a file": (_external_constant, "in other files"),
    "40 GB": (lambda: _huge([10_000_000_000]), "would take 37.3 GiB"),
    "40 GB in pieces": (lambda: _huge([100_000, 100_000]), "would take 37.3 GiB"),
    "more than 64 bits": (lambda: _huge([1 << 40, 1 << 40]), "would take|no ONNX file"),
    "size of the record": (_size_of_the_record, "depends on the record|not known before"),
    "texts": (_texts, "not known before"),
    "random numbers": (lambda: program(_node("RandomNormalLike", ["x"])), "draws random"),
    "dropout": (_dropout, "draws random"),
    "sequence": (_sequence, "not known before|no ONNX file"),
    "sparse": (_sparse, "sparse"),
    "training": (_training, "training steps"),
    "two outputs": (_two_outputs, "1 inputs and 2 outputs"),
    "other records": (lambda: program(sides=("n", 1, 4, 4)), "float32 of shape 1x3x4 is expected"),
    "fixed batch": (lambda: program(sides=(2, *SIDES)), "first dimension that is free"),
    "whole numbers by those of a record": (lambda: _divided(None), "constants above 0"),
    "remainders by those of a record": (lambda: _divided(None, "Mod"), "constants above 0"),
    "whole numbers by -1": (lambda: _divided(-1), "constants above 0"),
    "whole numbers by 0": (lambda: _divided([2] * 11 + [0]), "constants above 0"),
    "side below 0": (_side_below_zero, "depends on the record|not known before|no ONNX file"),
    "unknown operator": (lambda: program(_node("NoSuchThing", ["x"])), "no ONNX file"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_could_do_more_than_compute_is_refused(kind: str) -> None:
    make, text = REFUSED[kind]
    with pytest.raises(ConfigurationError, match=text):
        Program(make().SerializeToString(), SIDES)


def test_whole_numbers_are_divided_by_constants_above_zero() -> None:
    records = torch.tensor([-9.3e18, 7.0, -torch.inf]).reshape(3, 1, 1, 1).expand(3, *SIDES)
    assert Program(_divided(2).SerializeToString(), SIDES)(records)[1].tolist() == [3.0] * 12


def test_what_a_file_says_of_its_own_sizes_is_not_believed() -> None:
    model = _huge([10_000_000_000])
    model.graph.value_info.append(helper.make_tensor_value_info("much", TensorProto.FLOAT, [1]))
    with pytest.raises(ConfigurationError):
        Program(model.SerializeToString(), SIDES)


def test_weights_are_no_program_and_a_program_no_weights(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(program().SerializeToString())
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ConfigurationError, match=r"needs a program.*--backbone-program FILE"):
        load_part(load("features", OWN), "features", "all", sha256, path)
    # The site policy looks for programs under that name alone.
    with pytest.raises(ConfigurationError, match="only the task 'features' runs a program"):
        load_part(load("features", OWN), "own-features", "all", sha256, ProgramFile(path))
    with pytest.raises(ConfigurationError, match=r"needs public weights.*--backbone FILE"):
        load_part(load("mlp", _mlp()), "mlp", "head", sha256, ProgramFile(path))


def _mlp() -> dict[str, Any]:
    from tests.factories.settings import TASK_PARAMETERS

    return {**TASK_PARAMETERS, "hidden": 4, "layers": 2}


def test_a_program_that_fails_on_a_record_says_so_without_its_words() -> None:
    made = Program(program().SerializeToString(), SIDES)
    with pytest.raises(ConfigurationError, match=r"fails on a record: \w+$"):
        made(torch.rand(2, 1, 4, 4))
