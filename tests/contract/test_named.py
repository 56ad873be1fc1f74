"""Everything that pages, scripts, help texts, messages and the dashboard name exists: commands, settings, imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from server.config import Settings
from tests.contract.named import commands, python, settings
from tests.contract.named.sources import (
    ROOT,
    Piece,
    pages,
    pieces_of_dashboard,
    pieces_of_notebook,
    pieces_of_page,
    pieces_of_program,
    programs,
)

Check = Callable[[Piece], Iterator[str]]
CHECKS: tuple[Check, ...] = (
    commands.wrong_commands,
    commands.wrong_options,
    commands.wrong_modules,
    settings.wrong_settings,
    settings.wrong_variables,
    settings.wrong_routes,
    settings.wrong_extras,
    settings.wrong_targets,
    settings.wrong_files,
    python.wrong_imports,
)
# What a page takes as given before its first example.
GIVEN = {
    "docs/hospital.md": "token = ''",
    # Of the app, and of Flower, which is not installed here.
    "docs/flower.md": "from typing import Any\n"
    "strategy: Any; home: Any; ClientApp: Any; DifferentialPrivacyServerSideFixedClipping: Any",
    "docs/private-training.md": "from typing import Any\n"
    "model: Any; loss: Any; records: Any; sampling_rate: Any; expected_batch_size: Any; inputs: Any; targets: Any",
}
# A type checker cannot know these: a package that the page makes, inputs that are a tensor, arrays of any shape.
UNKNOWN_TO_THE_CHECKER = (
    *('Import "length_of_stay"', 'class "LazyInputs"', 'No overloads for "mean"', 'for "std"'),
    # Of one task alone.
    'attribute "generate"',
)


@cache
def _pages() -> tuple[Piece, ...]:
    return tuple(pages())


@cache
def _programs() -> tuple[Piece, ...]:
    return tuple(programs())


def _wrong(pieces: tuple[Piece, ...], *checks: Check) -> list[str]:
    return sorted({f"{piece.place}: {fault}" for piece in pieces for check in checks for fault in check(piece)})


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_everything_that_a_page_names_exists(check: Check) -> None:
    assert _wrong(_pages(), check) == []


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_everything_that_a_program_names_exists(check: Check) -> None:
    assert _wrong(_programs(), check) == []


@pytest.mark.slow
def test_every_word_of_code_stands_in_the_source() -> None:
    assert _wrong((*_pages(), *_programs()), python.wrong_names) == []


@pytest.mark.slow
def test_the_examples_use_names_attributes_and_arguments_that_exist(tmp_path: Path) -> None:
    faults = python.undefined_names(python.examples(pages()), tmp_path, GIVEN)
    assert [fault for fault in faults if not any(known in fault for known in UNKNOWN_TO_THE_CHECKER)] == []


def test_every_example_compiles() -> None:
    for place, program in python.examples(pages()).items():
        ast.parse(program, place)


PAGE = "Run `{}`.\n"
PLANTED = [
    "wardround metrics put",
    "wardround study strat sepsis",
    "wardround join sepsis --dta records.csv",
    "wardround data check records.csv --separator colon",
    "wardround study start sepsis now",
    "wardround --verison",
    "roster pni STUDY",
    "--accept-lost-ledgers",
    "python -m research.attacks.difference_attak",
    "python -m research.demonstration.seeds --outfile x.json",
    "[privacy.maskng]",
    "[limits.instance] epsilom",
    "[[privacy.limit]]",
    "min_witnes = 1",
    "schedule.slotz",
    "WARDROUND_SEVER",
    "/v1/studies/sepsis/budgets",
    "pip install 'wardround[clients]'",
    "make demos",
    "research/attacks/no_such_file.py",
    "from wardround import Hopsital",
]
PLANTED_WORDS = [
    "wardround.accounting.ClasicalAccountant",
    "wardround.__vresion__",
    "load_record(path)",
    "load_records(path, lasy=True)",
    "least_survivor",
    "ledger-forkd",
]


@pytest.mark.parametrize("text", PLANTED)
def test_a_wrong_name_on_a_page_is_noticed(text: str) -> None:
    assert _wrong(tuple(pieces_of_page("page.md", PAGE.format(text))), *CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("text", PLANTED_WORDS)
def test_a_wrong_word_on_a_page_is_noticed(text: str) -> None:
    assert _wrong(tuple(pieces_of_page("page.md", PAGE.format(text))), python.wrong_names)


@pytest.mark.parametrize(
    "text",
    [
        "wardround evaluate model.safetensors --data new.csv --watch",
        "wardround study start sepsis",
        "wardround own-budget --dataset icu-2024",
        "roster pin STUDY",
        "python -m research.attacks.difference_attack",
        "[privacy.masking]",
        "[limits.instance] epsilon",
        "min_witnesses = 1",
        "WARDROUND_SERVER",
        "/v1/studies/sepsis/budget",
        "from wardround import Hospital",
    ],
)
def test_a_right_name_is_not_reported(text: str) -> None:
    assert _wrong(tuple(pieces_of_page("page.md", PAGE.format(text))), *CHECKS) == []


@pytest.mark.slow
@pytest.mark.parametrize("text", ["load_records(path, lazy=True)", "ledger-forked", "probability_yes"])
def test_a_right_word_is_not_reported(text: str) -> None:
    assert _wrong(tuple(pieces_of_page("page.md", PAGE.format(text))), python.wrong_names) == []


@pytest.mark.parametrize(
    ("pieces", "fault"),
    [
        (pieces_of_page("p.md", "```console\n$ wardround joins x\n```\n"), "wardround joins x"),
        (pieces_of_page("p.md", "```\nmake demo   # first\nwardround budget x --jsn\n```\n"), "--jsn"),
        (pieces_of_page("p.md", "```toml\n[privacy]\nnoise = 2.0\n```\n"), "privacy.noise"),
        (pieces_of_page("p.md", "```python\nfrom wardround import Hospitals\n```\n"), "wardround.Hospitals"),
        (pieces_of_page("p.md", "```python\nfrom server import app\n```\n"), "pages import from"),
        (pieces_of_program("p.py", 'say("Then run: wardround rooster pin x")'), "wardround rooster pin x"),
        (pieces_of_program("p.py", 'say(f"see `wardround budget {study} --al`")'), "--al"),
        (pieces_of_program("p.py", 'say("then `roster pni STUDY`")'), "roster pni"),
        (pieces_of_program("p.py", 'help = "the entry `[schedul] slots`"'), "[schedul] slots"),
        (pieces_of_program("p.py", 'raise E("set WARDROUND_CLIENT_HOUSE")'), "WARDROUND_CLIENT_HOUSE"),
        (pieces_of_program("p.py", 'help = "see docs/hospitals.md"'), "docs/hospitals.md"),
        (pieces_of_program("p.py", '"""python -m research.none"""'), "research.none"),
        (pieces_of_dashboard("p.js", 'element("code", {}, "wardround operatr init")'), "wardround operatr init"),
        (pieces_of_dashboard("p.js", 'lines: ["`wardround metrics put` measures"]'), "wardround metrics put"),
        (pieces_of_dashboard("p.js", "phrase(`ask \\`wardround aks ${name}\\`.`)"), "wardround aks"),
        (pieces_of_dashboard("p.js", "const c = `wardround ledger verfy ${name}`;"), "wardround ledger verfy"),
        (pieces_of_dashboard("p.html", "<p><code>wardround serv</code></p>"), "wardround serv"),
        (pieces_of_notebook("p.ipynb", '{"cells": [{"cell_type": "markdown", "source": ["`wardround x-y`"]}]}'), "x-y"),
        (
            pieces_of_notebook(
                "p.ipynb", '{"cells": [{"cell_type": "code", "source": ["from wardround.accounting import plans"]}]}'
            ),
            "wardround.accounting.plans",
        ),
    ],
)
def test_a_wrong_name_in_any_kind_of_text_is_noticed(pieces: Iterator[Piece], fault: str) -> None:
    (wrong,) = _wrong(tuple(pieces), *CHECKS)
    assert fault in wrong


@pytest.mark.slow
def test_a_wrong_name_in_an_example_is_noticed(tmp_path: Path) -> None:
    program = 'from wardround import Hospital\n\nhospital = Hospital.open("x")\nhospital.jion("a", sepsis=token)\n'
    faults = python.undefined_names({"page.md": program}, tmp_path, {})
    assert any("jion" in fault for fault in faults)
    assert any('"token" is not defined' in fault for fault in faults)


@pytest.mark.parametrize(
    ("pieces", "least", "places"),
    [
        (_pages, 200, {"README.md", "CHANGELOG.md", "docs"}),
        pytest.param(_programs, 100, {"wardround", "server", "Makefile"}, marks=pytest.mark.slow),
    ],
    ids=["pages", "programs"],
)
def test_the_search_finds_commands(pieces: Callable[[], tuple[Piece, ...]], least: int, places: set[str]) -> None:
    assert sum(1 for piece in pieces() for _ in commands.command_lines(piece)) > least
    assert {piece.place.split("/")[0] for piece in pieces()} >= places


def test_every_setting_of_the_coordinator_is_documented() -> None:
    text = "".join((ROOT / "docs" / page).read_text() for page in ("operations.md", "single-sign-on.md"))
    named = set(re.findall(r"`WARDROUND_([A-Z_]+)`", text))
    assert {name.upper() for name in Settings.model_fields} <= named
