"""A released model for other programs: ONNX, and torch.export. Encoded inputs in, predictions out, for any batch size.

Both files are checked before they are written: what they compute on random inputs of the task's domain is within
TOLERANCE of what the model itself computes in float64. Neither holds a pickle, a record or a path of this machine.
"""

from __future__ import annotations

import io
import logging
import warnings
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from client_sdk.errors import ConfigurationError
from client_sdk.released.layout import layout_of
from client_sdk.released.model import ReleasedModel
from study_protocol.wire.signing import canonical_json

OPSET = 20
TOLERANCE = 1e-5
"""Largest difference of a probability that float32 may make."""

INPUTS, PREDICTIONS = "inputs", "predictions"
_RECORDS = "records"
_CHECKED = 256
# What PyTorch adds for tests of its own: the example inputs, pickled.
_EXAMPLES = "data/sample_inputs/"


class _Predicting(nn.Module):
    """Inputs to predictions, in float32."""

    def __init__(self, model: ReleasedModel) -> None:
        super().__init__()
        self.module, self._predictions = model.module, model.task.predictions

    def forward(self, inputs: Tensor) -> Tensor:
        return self._predictions(self.module(inputs))


@dataclass(frozen=True)
class Exported:
    """The file's bytes. difference: the largest of a prediction that the check found."""

    data: bytes
    difference: float


def described(model: ReleasedModel) -> dict[str, str]:
    """Return the metadata of an exported file: the model's own, its file's SHA-256, and how records become inputs."""
    metadata = {} if model.metadata is None else model.metadata.header()
    return {**metadata, "model_sha256": model.sha256, "inputs": canonical_json(layout_of(model.task)).decode()}


def to_onnx(model: ReleasedModel, examples: Tensor | None = None) -> Exported:
    """The model as ONNX of opset 20: `inputs` (records, ...) float32 to `predictions` (records, k).

    examples: (n, ...) inputs, for a task that has none of its own

    Raises:
        ConfigurationError: a package is missing, or the model cannot be exported or computes something else there.
    """
    try:
        _, _, runtime = (import_module(name) for name in ("onnx", "onnxscript", "onnxruntime"))
    except ImportError as error:
        raise ConfigurationError(f"ONNX needs {error.name}: pip install 'wardround[export]'") from error
    inputs = _inputs(model, examples)
    with _quiet("ONNX"):
        program = cast(Any, torch.onnx).export(
            _Predicting(model).eval(),
            (inputs[:2],),
            dynamo=True,
            input_names=[INPUTS],
            output_names=[PREDICTIONS],
            dynamic_shapes={INPUTS: {0: torch.export.Dim(_RECORDS)}},
            opset_version=OPSET,
            verbose=False,
        )
        proto = program.model_proto
    _name_no_sources(proto)
    for name, text in sorted(described(model).items()):
        proto.metadata_props.add(key=name, value=text)
    data = proto.SerializeToString(deterministic=True)
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return Exported(data, _checked(model, inputs, lambda part: session.run(None, {INPUTS: part.numpy()})[0]))


def to_torch(model: ReleasedModel, examples: Tensor | None = None) -> Exported:
    """The model as a program of torch.export, to be read by `torch.export.load`. Arguments and errors as `to_onnx`."""
    inputs = _inputs(model, examples)
    with _quiet("torch.export"):
        shapes = {INPUTS: {0: torch.export.Dim(_RECORDS)}}
        program = torch.export.export(_Predicting(model).eval(), (inputs[:2],), dynamic_shapes=shapes)
        for node in program.graph.nodes:
            # Paths of this machine.
            node.meta.pop("stack_trace", None)
        written = io.BytesIO()
        torch.export.save(program, written, extra_files={"wardround.json": canonical_json(described(model)).decode()})
        data = _without_examples(written.getvalue())
        reloaded = torch.export.load(io.BytesIO(data)).module()
    return Exported(data, _checked(model, inputs, lambda part: reloaded(part).detach().numpy()))


def _inputs(model: ReleasedModel, examples: Tensor | None) -> Tensor:
    if examples is None:
        return model.task.example_inputs(_CHECKED, np.random.default_rng(0))
    # An export of one record would be of one record for ever.
    return examples.repeat(2, *[1] * (examples.ndim - 1)) if len(examples) == 1 else examples[:_CHECKED]


def _checked(model: ReleasedModel, inputs: Tensor, run: Callable[[Tensor], NDArray[np.float32]]) -> float:
    """The largest difference on all inputs together and on one alone. Raises ConfigurationError."""
    expected = model.predicted(inputs)
    with torch.no_grad():
        errors = [np.abs(run(part) - expected[: len(part)]).max() for part in (inputs, inputs[:1])]
    worst = float(max(errors))
    # Not `>`: NaN differs as well.
    if not worst <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise ConfigurationError(f"the exported model differs by {worst:.2g} from the released one: nothing is written")
    return worst


@contextmanager
def _quiet(kind: str) -> Generator[None]:
    """Hide the exporters' notes on packages that are not needed here. Raises ConfigurationError."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
        raise ConfigurationError(f"{kind} cannot express this task's model: {str(error).splitlines()[0]}") from error
    finally:
        log.setLevel(level)


def _name_no_sources(program: Any) -> None:
    """Notes of the exporter on nodes: stack traces with this machine's paths."""
    for node in program.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""


def _without_examples(data: bytes) -> bytes:
    """The same archive, empty where the example inputs were, which are pickled and may be of a record."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(written, "w") as new:
        for entry in old.infolist():
            new.writestr(entry, b"" if _EXAMPLES in entry.filename else old.read(entry))
    return written.getvalue()
