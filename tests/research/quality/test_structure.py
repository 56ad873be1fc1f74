"""The figures of made-up trees small enough to count by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from research.quality.structure import Module, circles, code_lines, figures, record

TREE = {
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


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Any]:
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return figures(tmp_path)


def test_arrows_are_distinct_pairs_of_rooms_of_one_package(found: dict[str, Any]) -> None:
    # plan -> units, rooms, table; table -> plan; rooms -> units. Re-exports, json and another package do not count.
    assert found["arrows"] == {"accounting": 5, "server": 0}


def test_circles_are_found_between_modules_and_rooms(found: dict[str, Any]) -> None:
    assert found["circles"] == [["accounting.plan", "accounting.table"]]
    assert found["arrow_circles"]["accounting"] == [["plan", "table"]]


def test_a_longer_circle_and_one_that_hangs_on_another() -> None:
    ring = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["d"], "f": ["a"]}
    assert circles(ring) == [["a", "b", "c"], ["d", "e"]]
    assert circles({"a": ["b", "c"], "b": ["d"], "c": ["d"]}) == []


def test_a_scheme_is_asked_for_once_outside_its_table(found: dict[str, Any]) -> None:
    assert found["scheme_branches"] == 1


def test_modules_with_a_test_at_the_mirrored_path(found: dict[str, Any]) -> None:
    assert found["mirrored"] == round(100 * 2 / 7, 1)


def test_class_names_with_two_meanings(found: dict[str, Any]) -> None:
    assert found["twice"] == {"Epsilon": ["accounting.table", "accounting.units"]}


def test_the_largest(found: dict[str, Any]) -> None:
    assert found["largest_file"] == {"path": "accounting/plan.py", "lines": 10}
    assert found["largest_function"] == {"path": "accounting/plan.py:of", "lines": 3}


def test_code_is_what_is_neither_blank_nor_a_remark_nor_a_docstring() -> None:
    def count(text: str) -> int:
        return code_lines(Module(Path("accounting/a.py"), text))

    assert count(TREE["accounting/units.py"]) == 2
    assert count(TREE["accounting/plan.py"]) == 8
    # A string that is a value is code, its empty line too.
    assert count(TREE["accounting/rooms/two.py"]) == 3
    assert count('def f():\n    """Says\n\n    more."""\n\n    return (\n        1\n    )\n') == 4


def test_a_type_stub_is_code_and_no_module(found: dict[str, Any]) -> None:
    assert found["code_lines"]["server"] == 1 + 2
    assert found["modules"] == 9


def test_comments_per_hundred_lines(found: dict[str, Any]) -> None:
    sources = [name for name in TREE if not name.startswith("tests/") and name.endswith(".py")]
    lines = sum(len(TREE[name].splitlines()) for name in sources)
    assert found["comments"] == round(100 / lines, 2)


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
