"""Programs of a stranger, as ONNX files."""

from __future__ import annotations

from typing import Any

import onnx
import torch
from onnx import TensorProto, helper
from torch import nn

SIDES = (1, 3, 4)


def net() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh())


def weights() -> list[Any]:
    layer = net()[1]  # type: ignore[index]
    matrix, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    return [onnx.numpy_helper.from_array(matrix, "w"), onnx.numpy_helper.from_array(bias, "b")]


def layers() -> list[Any]:
    return [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["sums"], transB=1),
        helper.make_node("Tanh", ["sums"], ["y"]),
    ]


def program(
    nodes: list[Any] | None = None,
    numbers: list[Any] | None = None,
    *,
    sides: tuple[Any, ...] = ("n", *SIDES),
    output: Any = None,
    domains: tuple[str, ...] = ("",),
    functions: tuple[Any, ...] = (),
) -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, sides)
    y = output or helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 5))
    graph = helper.make_graph(nodes or layers(), "net", [x], [y], weights() if numbers is None else numbers)
    versions = [helper.make_opsetid(domain, 20 if domain in ("", "ai.onnx") else 1) for domain in domains]
    return helper.make_model(graph, opset_imports=versions, functions=functions, ir_version=9)
