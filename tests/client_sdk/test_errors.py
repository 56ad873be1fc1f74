"""The tree that stands at the top of the module is the tree of the classes."""

from __future__ import annotations

import inspect
import re

import pytest

from client_sdk import errors
from client_sdk.errors import ApiError, TrainingStopped, WardroundError, api_error
from study_protocol.study.messages import Problem


def problem(status: int, code: str = "some-code") -> Problem:
    return Problem(type="t", title="t", status=status, code=code, detail="do this", request_id="r-1")


def test_the_tree_is_drawn_as_it_is() -> None:
    drawn: dict[str, str] = {}
    above = ["WardroundError"]
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([│ ]*)[├└]── (\w+) ", line)
        if found:
            depth = len(found[1]) // 4 + 1
            above[depth:] = [found[2]]
            drawn[found[2]] = above[depth - 1]
    kinds = [k for k in vars(errors).values() if inspect.isclass(k) and issubclass(k, WardroundError)]
    assert drawn == {k.__name__: k.__base__.__name__ for k in kinds if k is not WardroundError and k.__base__}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 410, 413, 422, 429, 500, 503, 599])
def test_every_status_has_its_error_with_code_and_request(status: int) -> None:
    expected = {401: "Authentication", 403: "Authentication", 404: "NotFound", 409: "Conflict", 410: "Conflict"}
    error = api_error(problem(status))
    kind = expected.get(status, "InvalidRequest") + "Error" if status < 500 else "ServerFailure"
    assert type(error).__name__ == kind
    assert (error.status, error.code, error.request_id) == (status, "some-code", "r-1")
    assert str(error) == "do this [some-code, request r-1]"


def test_a_clock_that_is_wrong_has_an_error_of_its_own() -> None:
    assert isinstance(api_error(problem(401, "clock-skew")), errors.ClockSkewError)


def test_an_error_without_a_request_names_none() -> None:
    assert TrainingStopped("the loss").request_id is None
    assert "the loss: NaN" in str(TrainingStopped("the loss"))
    assert not issubclass(TrainingStopped, ApiError)
