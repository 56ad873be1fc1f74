"""What counts as called, on a tree small enough to read, and that the packages hold nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.benchmarks.uncalled import uncalled

TREE = {
    "pyproject.toml": (
        '[project.scripts]\nward = "server.entry:main"\n'
        "[tool.hatch.build.targets.wheel]\npackages = ['accounting', 'client_sdk', 'server']\n"
    ),
    "accounting/__init__.py": "from accounting.costs import offered\n",
    "accounting/costs.py": (
        "def offered(): return 1\n"
        "def imported(): return 2\n"
        "def by_module(): return 3\n"
        "def by_neighbour(): return 4\n"
        "def _private(): return by_neighbour()\n"
        "def only_tests(): return only_by_dead()\n"
        "def only_by_dead(): return only_tests()\n"
        "def recursive(): return recursive()\n"
    ),
    "client_sdk/costs.py": "def imported(): return 'another module of that name has no caller'\n",
    "client_sdk/study.py": (
        "from accounting import costs\n"
        "from accounting.costs import imported\n"
        "class Study:\n"
        "    def called(self): return imported() + costs.by_module()\n"
        "    def never(self): return self.called()\n"
        "    @property\n"
        "    def shown(self): return 1\n"
        "    @validator\n"
        "    def registered(self): return 1\n"
        "class Unused: pass\n"
    ),
    "server/entry.py": "from client_sdk.study import Study\ndef main(): return Study().called()\n",
    "tests/test_costs.py": "from accounting.costs import only_tests\nonly_tests()\n",
}

# A method that a library calls by its name, or what stays without a caller, each with its reason.
STAYS = {
    # uvicorn, logging and FastAPI call these.
    "handle_exit",
    "format",
    "get_route_handler",
    # Tests of seeded runs, and simulations.
    "SeededRandomness",
    # Tests of any task, a plug-in's too, draw records by these.
    "synthetic_records",
    "synthetic_targets",
    "label_cells",
    "random_values",
    # The API of keys: programs of study leads send these calls.
    "create_api_key",
    "api_keys",
    "revoke_api_key",
}


def test_a_definition_lives_by_a_mention_outside_itself_and_outside_the_dead(tmp_path: Path) -> None:
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = {(d.module, d.name) for d in uncalled(tmp_path)}
    assert found == {
        ("accounting.costs", "only_tests"),
        ("accounting.costs", "only_by_dead"),
        ("accounting.costs", "recursive"),
        ("client_sdk.costs", "imported"),
        ("client_sdk.study", "never"),
        ("client_sdk.study", "shown"),
        ("client_sdk.study", "Unused"),
    }


@pytest.mark.slow
def test_nothing_public_of_the_running_system_is_without_a_caller() -> None:
    # The accounting package is also a library for researchers: what it offers may have its callers elsewhere.
    root = Path(__file__).resolve().parents[3]
    found = {str(d): d.name for d in uncalled(root) if not d.module.startswith("accounting")}
    assert [text for text, name in found.items() if name not in STAYS] == []
