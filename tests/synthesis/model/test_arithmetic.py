"""Projection and sums against brute force and exact arithmetic."""

from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import synthesis.model
from synthesis.model.arithmetic import on_simplex, summed


@pytest.mark.parametrize("seed", range(5))
def test_no_point_of_the_simplex_is_nearer(seed: int) -> None:
    source = np.random.default_rng(seed)
    values = source.normal(0, 2, 5)
    nearest = on_simplex(values, 3.0)
    assert nearest.min() >= 0
    assert nearest.sum() == pytest.approx(3)
    others = source.dirichlet(np.ones(5), 2000) * 3
    assert ((values - nearest) ** 2).sum() <= ((values - others) ** 2).sum(axis=1).min() + 1e-12


def test_sums_are_taken_in_order() -> None:
    values = np.array([[1.0, 2.0**53], [1.0, 1.0], [1.0, -(2.0**53)]])
    assert summed(values, 0).tolist() == [3.0, 0.0]
    assert summed(values, 1)[1] == float(Fraction(2))


_INEXACT = {"dot", "matmul", "einsum", "inner", "tensordot", "exp", "log", "power", "pow", "sum", "mean", "var", "std"}


def _inexact(tree: ast.AST) -> list[str]:
    """Operations whose last bit depends on a processor or a library: powers, products of matrices, exp and log."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.MatMult):
            are_constants = all(isinstance(side, ast.Constant | ast.UnaryOp) for side in (node.left, node.right))
            found += [] if are_constants else [ast.unparse(node)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _INEXACT:
            # Sums of whole numbers and of truth values are exact.
            found += [] if "live" in ast.unparse(node.func.value) else [ast.unparse(node)]
    return found


def test_records_are_made_by_operations_that_every_processor_rounds_alike() -> None:
    folder = Path(synthesis.model.__path__[0])
    files = [*folder.glob("*.py"), folder.parent / "sets.py"]
    found = {path.name: _inexact(ast.parse(path.read_text())) for path in files}
    assert found.pop("sets.py") == ["values.mean(axis=0)", "values.var(axis=0, ddof=1)"]
    assert not any(found.values()), found
    assert set(_inexact(ast.parse("x**2 + x @ y + np.exp(x) + 2.0**-53"))) == {"x ** 2", "x @ y", "np.exp(x)"}
