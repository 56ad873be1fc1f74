"""The table of errors, the documentation and the code name the same problems."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from server.api.problems import CATALOGUE, answer
from server.domain.errors import Code
from study_protocol.study.messages import Problem

ROOT = Path(__file__).parents[2]
DOCUMENTED = {
    code: (int(status), when.strip(), action.strip())
    for code, status, when, action in re.findall(
        r"^\| `([a-z-]+)` \| (\d{3})[^|]* \| ([^|]+) \| ([^|]+) \|$",
        (ROOT / "docs" / "api-errors.md").read_text(),
        re.M,
    )
}


def test_every_problem_is_documented_and_nothing_else() -> None:
    assert set(DOCUMENTED) == set(CATALOGUE)


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_the_documentation_says_the_status_and_what_to_do(code: str) -> None:
    status, when, action = DOCUMENTED[code]
    assert status == CATALOGUE[code].status
    assert when
    assert action


def test_every_rejection_of_the_domain_has_an_answer() -> None:
    assert set(get_args(Code)) <= set(CATALOGUE)


def _first_strings(path: Path, *names: str) -> set[str]:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    named = [c for c in calls if getattr(c.func, "id", getattr(c.func, "attr", "")) in names and c.args]
    return {c.args[0].value for c in named if isinstance(c.args[0], ast.Constant) and isinstance(c.args[0].value, str)}


@pytest.mark.parametrize("path", sorted((ROOT / "server").rglob("*.py")), ids=lambda path: path.stem)
def test_every_code_that_is_raised_exists(path: Path) -> None:
    assert _first_strings(path, "ApiProblem", "Rejected", "answer") <= set(CATALOGUE)


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_problem_is_a_valid_document(code: str) -> None:
    response = answer(code, "do this")
    problem = Problem.model_validate_json(response.body)
    assert (problem.code, problem.status, problem.detail) == (code, response.status_code, "do this")
    assert response.media_type == "application/problem+json"
    assert ("www-authenticate" in response.headers) == (response.status_code == 401)
