from __future__ import annotations

import pytest
from pydantic import ValidationError

from study_protocol.study.people import MAX_DAYS, ApiKeyCreate, LoginPoll
from study_protocol.study.roles import ROLES


@pytest.mark.parametrize("role", ROLES)
def test_a_key_is_for_one_study_or_for_all(role: str) -> None:
    assert ApiKeyCreate.model_validate({"role": role, "name": "Ada"}).study is None
    of_one_study = {"role": role, "name": "Ada", "study": "sepsis"}
    if role == "administrator":
        with pytest.raises(ValidationError, match="choose the role lead"):
            ApiKeyCreate.model_validate(of_one_study)
    else:
        assert ApiKeyCreate.model_validate(of_one_study).study == "sepsis"


@pytest.mark.parametrize(
    "wrong",
    [
        *({"role": role} for role in ("operator", "Lead", "", None)),
        *({"study": study} for study in ("No Name", "", "a" * 64)),
        *({"name": name} for name in ("", " ", "\u200b", "a\nb", "\u202eadA", "a" * 101, None)),
        *({"expires_in_days": days} for days in (0, -1, MAX_DAYS + 1, 1.5, "7", True)),
        {"more": 1},
    ],
)
def test_what_is_no_key_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ApiKeyCreate.model_validate({"role": "viewer", "name": "Ada"} | wrong)


def test_a_name_is_kept_in_one_form() -> None:
    key = ApiKeyCreate(role="viewer", name=" Zoe\u0301  Example ")
    assert key.name == "Zo\u00e9 Example"


def test_a_login_is_asked_for_by_a_short_token() -> None:
    with pytest.raises(ValidationError):
        LoginPoll(token="x" * 201)
