"""A stranger's program: an ONNX graph of standard operators, checked before the runtime sees it.

Such a graph computes numbers from numbers. It has no operator that opens a file, starts a process or speaks to a
network. Features that could bring one in are refused: operators of other domains, functions, numbers in other files.
Features that make time and memory unbounded are refused as well: loops, branches, texts, and values whose size is not
known beforehand. No part of the file is ever unpickled. Needs the packages onnx and onnxruntime.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from private_learning.errors import ConfigurationError

MAX_BYTES = 4 << 30
"""Most bytes of all values together that a program makes of one record."""

_DOMAINS = ("", "ai.onnx")
_ATTRIBUTES = ("FLOAT", "INT", "STRING", "TENSOR", "FLOATS", "INTS", "STRINGS")
# What gives other numbers the next time.
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
# Bytes of the types of numbers that a value may have (onnx.TensorProto.DataType).
_WIDTHS = {
    "FLOAT": 4,
    "UINT8": 1,
    "INT8": 1,
    "UINT16": 2,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "BOOL": 1,
    "FLOAT16": 2,
    "DOUBLE": 8,
    "UINT32": 4,
    "UINT64": 8,
    "BFLOAT16": 2,
}


class _Refused(Exception):
    """The reason of a refusal, as the end of a sentence about the program."""


class Program(nn.Module):
    """Runs a program on the CPU, one record at a time, so that no record can change the result of another.

    data   of the file
    sides  of one record

    Raises:
        ConfigurationError: the file is no such program, or one that is refused. The text gives the reason.
    """

    def __init__(self, data: bytes, sides: tuple[int, ...]) -> None:
        super().__init__()
        self._data, self._sides = data, sides
        self._input, self._session = _opened(data, sides)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (n, ...) features of (n, *sides) inputs."""
        rows = inputs.detach().cpu().float().numpy()
        return torch.cat([self._of_one(row) for row in np.split(rows, len(rows))]).to(inputs.device)

    def __reduce__(self) -> Any:
        # A session cannot be sent to another process.
        return Program, (self._data, self._sides)

    def __deepcopy__(self, memory: Any) -> Program:
        # It has no state that could change.
        return self

    def _of_one(self, row: Any) -> Tensor:
        try:
            (output,) = self._session.run(None, {self._input: row})
        # The runtime's kinds of errors have no common one.
        except Exception as error:  # noqa: BLE001
            raise ConfigurationError(f"the backbone's program fails on a record: {type(error).__name__}") from None
        features = np.asarray(output)
        if features.dtype.kind != "f" or features.shape[:1] != (1,):
            raise ConfigurationError("the backbone's program does not make one row of numbers of a record")
        return torch.as_tensor(features.astype(np.float32))


def _opened(data: bytes, sides: tuple[int, ...]) -> tuple[str, Any]:
    """Return the name of the input, and a session of the runtime."""
    try:
        onnx, runtime = import_module("onnx"), import_module("onnxruntime")
    except ImportError as error:
        raise ConfigurationError(f"a program needs {error.name}: pip install 'wardround[program]'") from error
    subject = f"the backbone's program (SHA-256 {hashlib.sha256(data).hexdigest()})"
    try:
        model: Any = onnx.ModelProto.FromString(data)
        # The runtime may know fields that this parser does not.
        model.DiscardUnknownFields()
        _require_plain(model, onnx)
        onnx.checker.check_model(model)
        name = _fix_to_one_record(model, sides)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        _require_small(inferred, onnx)
        _require_divisors(inferred, onnx)
        return name, _session(runtime, model.SerializeToString())
    except _Refused as refused:
        raise ConfigurationError(f"{subject} {refused}") from None
    # Parser, checker and runtime have kinds of errors of their own. Their words quote the file.
    except Exception as error:  # noqa: BLE001
        raise ConfigurationError(
            f"{subject} is no ONNX file that can be run ({type(error).__name__}). TorchScript, torch.export and "
            "pickled files are not read, because reading them can run code: write it with torch.onnx.export(..., "
            "dynamo=True, external_data=False)"
        ) from None


def _session(runtime: Any, data: bytes) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    # Its log quotes names of the file.
    options.log_severity_level = 4
    return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _require_plain(model: Any, onnx: Any) -> None:
    """Raise _Refused for features that could do more than compute. Only the parser has seen the file before."""
    graph = model.graph
    domains = {entry.domain for entry in (*model.opset_import, *graph.node)}
    if model.functions or not domains <= set(_DOMAINS):
        raise _Refused("uses operators that are not of ONNX itself: export it without custom operators and functions")
    if model.training_info or graph.sparse_initializer:
        raise _Refused("holds training steps or sparse numbers, which are not read")
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    _require_no_graphs(attributes, onnx)
    _require_no_files(graph, attributes, onnx)
    if any(map(_is_random, graph.node)):
        raise _Refused("draws random numbers: export it in eval mode")
    # What it says beside the graph is for other programs.
    del model.metadata_props[:]


def _require_no_graphs(attributes: Sequence[Any], onnx: Any) -> None:
    names = onnx.AttributeProto.AttributeType.Name
    if any(names(each.type) not in _ATTRIBUTES or each.ref_attr_name for each in attributes):
        raise _Refused("has loops, branches or values that are no tensors: export it for a fixed shape")
    if any(each.HasField("g") or each.graphs for each in attributes):
        raise _Refused("hides a graph in an operator")


def _require_no_files(graph: Any, attributes: Sequence[Any], onnx: Any) -> None:
    tensors = [*graph.initializer, *(tensor for each in attributes for tensor in (each.t, *each.tensors))]
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data for tensor in tensors):
        raise _Refused("has its numbers in other files: export it with external_data=False")


def _is_random(node: Any) -> bool:
    return node.op_type in _RANDOM or (node.op_type == "Dropout" and len(node.input) > 2)


def _fix_to_one_record(model: Any, sides: tuple[int, ...]) -> str:
    """Fix the shapes to those of one record, in place, and return the name of the input."""
    graph = model.graph
    numbers = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in numbers]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise _Refused(f"has {len(inputs)} inputs and {len(graph.output)} outputs: one of each is expected")
    kind = inputs[0].type.tensor_type
    dims = tuple(each.dim_value for each in kind.shape.dim)
    if kind.elem_type != 1 or dims[1:] != sides or dims[0] not in (0, 1):
        raise _Refused(
            f"takes records of shape {'x'.join(map(str, dims[1:]))}: float32 of shape {'x'.join(map(str, sides))} is "
            "expected, with a first dimension that is free"
        )
    kind.shape.dim[0].dim_value = 1
    # Worked out anew: what the file says of its values is not believed.
    del graph.value_info[:]
    graph.output[0].type.tensor_type.ClearField("shape")
    return str(inputs[0].name)


def _require_small(model: Any, onnx: Any) -> None:
    """Raises _Refused: a graph with inferred shapes takes too much memory, or may."""
    graph = model.graph
    kinds = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.output)}
    unknown = onnx.TypeProto.Tensor()
    names = (name for node in graph.node for name in node.output if name)
    total = sum(_bytes_of(kinds.get(name, unknown), onnx) for name in names)
    if total > MAX_BYTES:
        raise _Refused(f"would take {total / (1 << 30):,.1f} GiB for one record, more than {MAX_BYTES >> 30} GiB")


def _bytes_of(kind: Any, onnx: Any) -> int:
    width = _WIDTHS.get(onnx.TensorProto.DataType.Name(kind.elem_type))
    if width is None or not kind.HasField("shape"):
        raise _Refused("has a value whose type or size is not known before it runs")
    # A side below 0 fails when it runs, after what came before it was made.
    if not all(each.HasField("dim_value") and each.dim_value >= 0 for each in kind.shape.dim):
        raise _Refused("has a value whose size depends on the record")
    return width * math.prod(each.dim_value for each in kind.shape.dim)


def _require_divisors(model: Any, onnx: Any) -> None:
    """Raises _Refused: whole numbers are divided by what a record decides. The least one by −1 ends the process."""
    graph = model.graph
    values = (*graph.value_info, *graph.output)
    kinds = {value.name: onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type) for value in values}
    constants = {tensor.name: tensor for tensor in graph.initializer} | _constant_outputs(graph)
    for node in graph.node:
        if node.op_type not in ("Div", "Mod") or "INT" not in kinds[node.output[0]]:
            continue
        divisor = constants.get(node.input[1])
        if divisor is None or not (onnx.numpy_helper.to_array(divisor) > 0).all():
            raise _Refused("divides whole numbers by others than constants above 0, which could end the process")


def _constant_outputs(graph: Any) -> dict[str, Any]:
    nodes = [node for node in graph.node if node.op_type == "Constant"]
    return {node.output[0]: each.t for node in nodes for each in node.attribute if each.name == "value"}
