from __future__ import annotations

import re
from pathlib import Path

import pytest

from server.single_sign_on.errors import SingleSignOnMisconfigured
from server.single_sign_on.grants import GroupGrant, grants_of_groups, load_group_grants
from study_protocol.study.roles import Grant

TWO = """
[[grant]]
group = "/consortium/leads"
role = "lead"
study = "stroke-2"

[[grant]]
group = "auditors"
role = "auditor"
"""


def load(tmp_path: Path, text: str) -> tuple[GroupGrant, ...]:
    path = tmp_path / "grants.toml"
    path.write_text(text, encoding="utf-8")
    return load_group_grants(path)


def test_a_file_of_grants_is_read_in_its_order(tmp_path: Path) -> None:
    grants = load(tmp_path, TWO)
    assert [(grant.group, grant.role, grant.study) for grant in grants] == [
        ("/consortium/leads", "lead", "stroke-2"),
        ("auditors", "auditor", None),
    ]


def test_a_person_has_the_grants_of_all_their_groups(tmp_path: Path) -> None:
    grants = load(tmp_path, TWO)
    both = (Grant("lead", "stroke-2"), Grant("auditor"))
    assert grants_of_groups(grants, ["auditors", "/consortium/leads", "others"]) == both
    assert grants_of_groups(grants, ["auditors"]) == both[1:]
    assert grants_of_groups(grants, ["Auditors", "auditors ", "leads", ""]) == ()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('group = "a"', "role: is missing"),
        ('role = "lead"', "group"),
        ('group = ""\nrole = "lead"', "group"),
        ('group = " "\nrole = "lead"', "spaces"),
        ('group = "a\\u202e"\nrole = "lead"', "group"),
        ('group = "a"\nrole = "owner"', "role: must be 'administrator', 'lead', 'asker', 'auditor' or 'viewer'"),
        ('group = "a"\nrole = "Lead"', "role"),
        ('group = "a"\nrole = ["lead"]', "role"),
        ('group = 7\nrole = "lead"', "group"),
        ('group = "a"\nrole = "lead"\nstudies = "b"', "studies: there is no such entry. Did you mean study"),
        ('group = "a"\nrole = "lead"\nstudy = ""', "study"),
        ('group = "a"\nrole = "lead"\nstudy = "No Name"', "study"),
        ('group = "a"\nrole = "administrator"\nstudy = "stroke-2"', "leave study out"),
    ],
)
def test_a_wrong_entry_is_named_by_file_and_number(tmp_path: Path, entry: str, problem: str) -> None:
    with pytest.raises(SingleSignOnMisconfigured, match=rf"grants\.toml: grant 3: .*{problem}"):
        load(tmp_path, f"{TWO}\n[[grant]]\n{entry}\n")


@pytest.mark.parametrize(
    "text", ["", "grant = []", "grant = 1", f"{TWO}\n[other]\n", "[[grants]]\ngroup = 'a'", "[grant]\ngroup = 'a'"]
)
def test_a_file_without_grants_or_with_more_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SingleSignOnMisconfigured, match=r"grants\.toml: .*\[\[grant\]\]"):
        load(tmp_path, text)


def test_an_entry_that_is_no_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(SingleSignOnMisconfigured, match="grant 1"):
        load(tmp_path, "grant = [1]")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SingleSignOnMisconfigured, match=r"grants\.toml"):
        load_group_grants(tmp_path / "grants.toml")
    with pytest.raises(SingleSignOnMisconfigured, match=r"grants\.toml: line 1"):
        load(tmp_path, "group: a")


def test_the_page_s_file_can_be_used(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "single-sign-on.md"
    (block,) = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    assert [grant.role for grant in load(tmp_path, block)] == ["lead", "auditor"]
