"""The figures of made-up trees small enough to count by hand."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from research.quality.structure import (
    MeasurementError,
    Module,
    circles,
    code_lines,
    decisions,
    figures,
    limited,
    mccabe,
    public_names,
    record,
    untested,
)

TREE = {
    "pyproject.toml": "[tool.hatch.build.targets.wheel]\npackages = ['accounting', 'server']\n",
    "accounting/__init__.py": "from accounting.units import Epsilon\nfrom accounting.plan import Plan\n",
    "accounting/units.py": '"""Units."""\n\n\nclass Epsilon:\n    """One."""\n\n    value = 1  # of it\n',
    "accounting/plan.py": (
        "from typing import TYPE_CHECKING\n"
        "from .units import Epsilon\n"
        "if TYPE_CHECKING:\n"
        "    from accounting.rooms import one\n"
        "\n"
        "# Why.\n"
        "class Plan:\n"
        "    def of(self, scheme):\n"
        "        import accounting.table\n"
        "        return scheme == 'joint'\n"
    ),
    "accounting/table.py": "from accounting import plan\nclass Epsilon: pass\n",
    "accounting/schemes.py": "def is_joint(scheme): return scheme == 'joint'\n",
    "accounting/rooms/__init__.py": "from accounting.units import Epsilon\n",
    "accounting/rooms/one.py": "from . import two\nfrom ..units import Epsilon\nimport json\n",
    "accounting/rooms/two.py": "text = '''a\n\nb'''\n",
    "server/__init__.pyi": "from .api import one as one\n\n# Why.\nfrom .api import two as two\n",
    "server/api.py": "from accounting.units import Epsilon\n",
    "tests/accounting/test_units.py": "",
    "tests/accounting/rooms/test_one.py": "",
}


def write(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def measured(tmp_path: Path) -> dict[str, Any]:
    return figures(write(tmp_path, TREE))


def test_arrows_are_distinct_pairs_of_rooms_of_one_package(measured: dict[str, Any]) -> None:
    # plan -> units, rooms, table; table -> plan; rooms -> units. Re-exports, json and another package do not count.
    assert measured["arrows"] == {"accounting": 5, "server": 0}


def test_circles_are_found_between_modules_and_rooms(measured: dict[str, Any]) -> None:
    assert measured["circles"] == [["accounting.plan", "accounting.table"]]
    assert measured["arrow_circles"]["accounting"] == [["plan", "table"]]


def test_a_longer_circle_and_one_that_hangs_on_another() -> None:
    ring = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["d"], "f": ["a"]}
    assert circles(ring) == [["a", "b", "c"], ["d", "e"]]
    assert circles({"a": ["b", "c"], "b": ["d"], "c": ["d"]}) == []


def test_a_scheme_is_asked_for_once_outside_its_table(measured: dict[str, Any]) -> None:
    assert measured["scheme_branches"] == 1


def test_modules_with_a_test_at_the_mirrored_path(measured: dict[str, Any]) -> None:
    assert measured["mirrored"] == round(100 * 2 / 7, 1)


def test_class_names_with_two_meanings(measured: dict[str, Any]) -> None:
    assert measured["twice"] == {"Epsilon": ["accounting.table", "accounting.units"]}


def test_the_largest(measured: dict[str, Any]) -> None:
    assert (measured["file_lines"]["largest"], measured["file_lines"]["max"]) == ("accounting/plan.py", 10)
    assert (measured["function_lines"]["largest"], measured["function_lines"]["max"]) == ("accounting/plan.py:of", 3)


def test_code_is_what_is_neither_blank_nor_a_remark_nor_a_docstring() -> None:
    def count(text: str) -> int:
        return code_lines(Module(Path("accounting/a.py"), text))

    assert count(TREE["accounting/units.py"]) == 2
    assert count(TREE["accounting/plan.py"]) == 8
    # A string that is a value is code, its empty line too.
    assert count(TREE["accounting/rooms/two.py"]) == 3
    assert count('def f():\n    """Says\n\n    more."""\n\n    return (\n        1\n    )\n') == 4


def test_a_type_stub_is_code_and_no_module(measured: dict[str, Any]) -> None:
    assert measured["code_lines"]["server"] == 1 + 2
    assert measured["modules"] == 9


def test_comments_per_hundred_lines(measured: dict[str, Any]) -> None:
    sources = [name for name in TREE if not name.startswith("tests/") and name.endswith(".py")]
    lines = sum(len(TREE[name].splitlines()) for name in sources)
    assert measured["comments"] == round(100 / lines, 2)


def test_a_record_keeps_what_stands_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "structure.json"
    record(path, "before", "structure", {"modules": 1})
    record(path, "before", "way", {"files": 2})
    record(path, "after", "structure", {"modules": 3})
    record(path, "before", "structure", {"modules": 4})
    assert json.loads(path.read_text()) == {
        "before": {"structure": {"modules": 4}, "way": {"files": 2}},
        "after": {"structure": {"modules": 3}},
    }


def test_lines_and_the_share_of_the_largest_package(measured: dict[str, Any]) -> None:
    assert measured["packages"] == {"accounting": 2 + 7 + 10 + 2 + 1 + 1 + 3 + 3, "server": 1}
    assert measured["lines"] == 30
    assert measured["largest_package"] == {"package": "accounting", "percent": 96.7}


def test_modules_in_the_folder_of_their_package(measured: dict[str, Any]) -> None:
    assert measured["flat"] == {"accounting": 5, "server": 1}


def test_imports_a_module(measured: dict[str, Any]) -> None:
    # The package: units, plan. plan: units, rooms.one, table. table: plan. rooms: units. one: two, units. api: units.
    assert measured["arrows_per_module"] == round(10 / 9, 2)


def test_a_large_module_is_tested_where_a_test_names_it(tmp_path: Path) -> None:
    text = "x = 1\n"
    sources = {
        "a/large.py": 101 * text,
        "a/small.py": 100 * text,
        "a/other.py": 101 * text,
        "a/__init__.py": 101 * text,
    }
    write(tmp_path, {"tests/test_all.py": "from a.other import x\n", "tests/note.txt": "a.large"})
    modules = [Module(Path(path), text) for path, text in sources.items()]
    assert untested(tmp_path, modules) == ["a/large.py"]


def test_long_files_and_functions_are_counted_beyond_the_limit(tmp_path: Path) -> None:
    def function(name: str, lines: int) -> str:
        return f"def {name}():\n" + "    x = 1\n" * (lines - 1)

    write(tmp_path, TREE | {"server/long.py": function("f", 50) + function("g", 51) + "x = 1\n" * 300})
    measured = figures(tmp_path)
    assert (measured["file_lines"]["above"], measured["file_lines"]["max"]) == (1, 401)
    assert (measured["function_lines"]["above"], measured["function_lines"]["max"]) == (1, 51)
    # Of three lines in plan, one in schemes, 50 and 51 here, in this order: 1, 3, 50, 51.
    assert (measured["function_lines"]["median"], measured["function_lines"]["p90"]) == (26.5, 50)


BRANCHES = """\
def plain(a):
    return a

def branches(a, b):
    if a and b and a < b:
        return [x for x in b if x]
    for x in b:
        try:
            assert x
        except ValueError:
            return 1 if x else 2
    while a:
        a = a - 1
"""


def test_complexity_in_both_counts(tmp_path: Path) -> None:
    write(tmp_path, {"server/steps.py": BRANCHES})
    # 1, and the branch, both loops and the handler. Ruff counts no comprehension and no operand of `and`.
    assert sorted(mccabe(tmp_path, ["server", "nowhere"])) == [
        (1, "server/steps.py:plain"),
        (5, "server/steps.py:branches"),
    ]
    plain, branches = ast.parse(BRANCHES).body
    assert isinstance(plain, ast.FunctionDef)
    assert isinstance(branches, ast.FunctionDef)
    assert decisions(plain) == 1
    # if, two times and, comprehension with its condition, for, assert, except, conditional expression, while.
    assert decisions(branches) == 1 + 10


def test_public_names_are_those_of_the_stub(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "accounting/__init__.pyi": "from .units import Epsilon as Epsilon\nfrom .plan import Plan as Plan\n",
            "wardround/__init__.pyi": (
                "from accounting import *\nfrom client.data import Table as Table\n"
                "from client.data import load as _load_records\nfrom accounting.plan import Plan as Plan\n"
                "load_records = _load_records\n"
            ),
        },
    )
    assert public_names(tmp_path) == {"Epsilon", "Plan", "Table", "load_records"}


def test_every_limited_figure_is_a_number(measured: dict[str, Any]) -> None:
    assert {type(value) for value in limited(measured).values()} <= {int, float}
    assert limited(measured)["shipped_lines"] == 30


def test_a_tree_without_a_list_of_packages_cannot_be_measured(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"pyproject\.toml does not list the packages"):
        figures(tmp_path)
    write(tmp_path, {"pyproject.toml": "[tool]\n"})
    with pytest.raises(MeasurementError, match=r"pyproject\.toml does not list the packages"):
        figures(tmp_path)
