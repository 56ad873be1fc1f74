"""docs/tables.md is what the results say; the catalogue has every line of the papers; the command answers plainly."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from research.tables.__main__ import main
from research.tables.catalogue import entries, selected_entries
from research.tables.lines import LINES
from research.tables.lines import chosen_settings as chosen_settings
from research.tables.page import KINDS, PAGE, markdown
from research.tables.result import RESULTS, EpsilonReading, Papers, Row, read, write
from wardround.demo.scenarios import DataMissing

ROOT = Path(__file__).parents[3]
PAPERS = Papers("somebody", {"without privacy": 97, "DP": 80, "BDP": 90}, {"DP": 8, "BDP": 2.5}, 1e-3)
ROW = Row(
    table="II",
    name="100 clients, ε 8",
    data="MNIST",
    papers=PAPERS,
    split="dealt",
    seeds=(0, 1, 2, 3),
    accuracies=(0.9, 0.92, 0.94, 0.96),
    spent=(
        EpsilonReading("worst case", "client", 7.5, 1e-3, "how"),
        EpsilonReading("papers", "client", None, 1e-3, "how"),
    ),
    settings={"rounds": 8, "clip": 1 / 3},
    found_by="a search",
)


def test_the_page_is_what_the_results_say() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == markdown(entries(), read(ROOT / RESULTS))


def test_every_result_has_its_line_and_file_and_at_least_five_seeds() -> None:
    known = {(entry.table, entry.name): entry for entry in entries()}
    for row in read(ROOT / RESULTS):
        assert known[row.table, row.name].papers == row.papers
        assert (ROOT / RESULTS / row.file).is_file()
        assert len(set(row.seeds)) >= 5
        assert any(each.kind == "worst case" for each in row.spent)


def test_a_line_survives_its_file(tmp_path: Path) -> None:
    path = write(ROW, tmp_path)
    assert path.name == "ii-100-clients-epsilon-8.json"
    (again,) = read(tmp_path)
    assert replace(again, spent=tuple(again.spent)) == replace(
        ROW, seeds=list(ROW.seeds), accuracies=list(ROW.accuracies), without_noise=[], notes=[]
    )


def test_mean_and_error_are_of_the_seeds() -> None:
    assert ROW.mean == pytest.approx(93)
    # Deviation √(20/3) points, by √4.
    assert ROW.error == pytest.approx((20 / 3) ** 0.5 / 2)


def test_a_row_without_its_accuracies_is_refused() -> None:
    with pytest.raises(ValueError, match="4 seeds with 1"):
        replace(ROW, accuracies=(0.9,))


def test_the_page_shows_the_numbers_of_a_line() -> None:
    text = markdown(selected_entries("II", {"clients": "100"}), [ROW])
    assert "| 100 clients, ε 8 | 97 / 86 / 92 | 8 / 2 (δ 0.001) | **93.00 ± 1.29** |" in text
    assert "| 7.5 [1] | 4 |" in text
    assert "| 100 clients, ε 8 | ∞ [1] |" in text
    assert "| 1 | how |" in text
    assert "not run" in text


def test_no_number_on_the_page_is_below_the_one_that_was_found() -> None:
    for row in read(ROOT / RESULTS):
        text = markdown(entries(), [row])
        numbers = re.findall(r"([^ |]+) \[\d+\]", text)
        ordered = sorted(row.spent, key=lambda each: list(KINDS).index(each.kind))
        assert len(numbers) == len(ordered)
        for number, each in zip(numbers, ordered, strict=True):
            assert each.delta == (row.papers.delta if each.level == "client" else 1e-5)
            if each.epsilon is not None:
                assert each.epsilon <= float(number) <= each.epsilon * 1.001


def test_every_table_of_the_papers_is_there() -> None:
    found = {(entry.table, entry.selectors.get("clients"), entry.selectors.get("epsilon")) for entry in entries()}
    for table in ("I", "II"):
        for clients, epsilon in (("100", "8"), ("1000", "3"), ("10000", "1")):
            assert (table, clients, epsilon) in found
    assert {("IV", "100", "2"), ("IV", "100", "4")} <= found
    assert [(entry.table, entry.selectors["clients"]) for entry in entries() if entry.selectors["data"] == "aptos"] == [
        *(("III", "100"), ("III", "1000"), ("III", "10000"), ("IV", "100"))
    ]


def test_a_line_without_records_says_what_it_needs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["III", "--data", "aptos", "--results", str(tmp_path)]) == 0
    assert "not re-run: needs the images of APTOS 2019" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_a_folder_of_a_users_own_gives_the_line_that_is_missing(tmp_path: Path) -> None:
    image, draw = pytest.importorskip("PIL.Image"), np.random.default_rng(1)
    for part, count in (("train", 60), ("test", 20)):
        for name, edge in (("across", 0), ("down", 1)):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 30, (40, 40), dtype=np.uint8)
                np.moveaxis(pixels, edge, 0)[draw.integers(8, 30) :] += 200
                image.fromarray(pixels).save(tmp_path / part / name / f"{number}.png")
    asked = ["III", "--data", "aptos", "--clients", "100", "--seeds", "2", "--results", str(tmp_path / "results")]
    assert main([*asked, "--folder", str(tmp_path)]) == 0
    (row,) = read(tmp_path / "results")
    assert row.data == "APTOS"
    assert row.settings["copies"] == 292
    assert row.mean > 90
    assert main([*asked, "--folder", str(tmp_path / "test")]) == 2


def test_a_line_whose_settings_were_not_searched_says_so(tmp_path: Path) -> None:
    empty = tmp_path / "settings.json"
    empty.write_text("{}")
    with pytest.raises(DataMissing, match="--lines II/100/iid/8 first"):
        chosen_settings(next(line for line in LINES if line.key == "II/100/iid/8"), empty)


def test_a_folder_is_refused_where_records_are_known(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["II", "--clients", "100", "--epsilon", "8", "--folder", str(tmp_path)]) == 2
    assert "has its own records" in capsys.readouterr().out


@pytest.mark.parametrize("asked", [["II", "--clients", "7"], ["V"], []], ids=["clients", "table", "nothing"])
def test_a_wrong_question_is_answered(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(asked) == 2
    assert capsys.readouterr().err


def test_the_page_is_written_from_a_folder_of_results(tmp_path: Path) -> None:
    write(ROW, tmp_path)
    page = tmp_path / "page.md"
    assert main(["--docs", "--results", str(tmp_path), "--page", str(page)]) == 0
    assert "**93.00 ± 1.29**" in page.read_text(encoding="utf-8")
    assert json.loads((tmp_path / ROW.file).read_text(encoding="utf-8"))["seeds"] == [0, 1, 2, 3]
