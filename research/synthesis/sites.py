"""How often `--ready sites` finds wrong codings, and how often it names a hospital without one.

    python -m research.synthesis.sites [--runs 20] [--json FILE]

Data: heart disease, four hospitals as they are; the same patients, cholesterol of 0 made missing, dealt to four
hospitals at random, where every finding is false; and other data dealt at random, with one error planted at one
hospital. Noise: that of four masked hospitals (h = 3) at ε 0.3 and 1, δ 1e-5, one question. Every run has a seed of
its own.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.profile import mu_from_epsilon
from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.sites import Sites
from study_protocol.queries.ready import Declared, sites
from study_protocol.queries.variables import Range, Variable
from wardround.demo.scenarios import data_folder

Table = dict[str, NDArray[Any]]
Blocks = Mapping[str, Table]
Finding = tuple[str, str, str]
"""hospital, column, what."""
HOSPITALS, SURVIVORS, SHARES, DELTA = ("cleveland", "hungarian", "switzerland", "va"), 4, 3, 1e-5
EPSILONS = (0.3, 1.0)
_NAMES = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal", "num"),
)
_CODES = {"sex": 2, "cp": 4, "fbs": 2, "restecg": 3, "exang": 2, "slope": 3, "ca": 4, "thal": 3, "num": 2}
_FIRST = {"cp": 1, "slope": 1}
_RANGES = {"age": (20, 90), "trestbps": (60, 220), "chol": (80, 600), "thalach": (50, 220), "oldpeak": (0, 7)}


def heart_columns() -> tuple[Declared, ...]:
    """Return what a study would declare from the data's description."""
    columns: list[Declared] = []
    for name in _NAMES:
        if name in _RANGES:
            columns.append(Range(column=name, low=_RANGES[name][0], high=_RANGES[name][1], missing_values=("?",)))
            continue
        first = _FIRST.get(name, 0)
        codes = ("3", "6", "7") if name == "thal" else tuple(map(str, range(first, first + _CODES[name])))
        columns.append(Variable(column=name, categories=codes, missing_values=("?",)))
    return tuple(columns)


def heart() -> Blocks:
    blocks: dict[str, Table] = {}
    for hospital in HOSPITALS:
        lines = (data_folder() / "heart_disease_4_hospitals" / f"processed.{hospital}.data").read_text().split()
        rows = np.array([line.split(",") for line in lines], object)
        blocks[hospital] = dict(zip(_NAMES, rows.T, strict=True))
        blocks[hospital]["num"] = np.array(["0" if value == "0" else "1" for value in rows[:, -1]], object)
    return blocks


def invented(count: int, source: np.random.Generator) -> Table:
    """Return patients of an invented ward: what is missing and the rest have nothing to do with the hospital."""
    height = source.normal(170, 9, count)
    table: Table = {
        "weight": np.round(23 * (height / 100) ** 2 + source.normal(6, 12, count), 1),
        "height": np.round(height),
        "pressure": np.round(source.normal(132, 19, count)),
        "temperature": np.round(source.normal(37.1, 0.7, count), 1),
        "sex": source.choice(np.array(["f", "m"], object), count, p=[0.62, 0.38]),
        "smoker": source.choice(np.array(["never", "former", "now"], object), count, p=[0.5, 0.3, 0.2]),
        "died": source.choice(np.array(["0", "1"], object), count, p=[0.85, 0.15]),
    }
    for name in ("weight", "pressure", "smoker"):
        table[name] = table[name].astype(object)
        table[name][source.uniform(size=count) < 0.08] = None
    return table


INVENTED: tuple[Declared, ...] = (
    Range(column="weight", low=35, high=150),
    Range(column="height", low=130, high=210),
    Range(column="pressure", low=60, high=230),
    Range(column="temperature", low=33, high=42),
    Variable(column="sex", categories=("f", "m")),
    Variable(column="smoker", categories=("never", "former", "now")),
    Variable(column="died", categories=("0", "1")),
)


def _numbers(change: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Callable[..., NDArray[Any]]:
    return lambda cells, _: change(cells.astype(np.float64))


def _swapped(cells: NDArray[Any], _: np.random.Generator) -> NDArray[Any]:
    return np.where(cells == "f", "m", "f").astype(object)


def _lost(cells: NDArray[Any], source: np.random.Generator) -> NDArray[Any]:
    found = cells.copy()
    found[source.uniform(size=len(cells)) < 0.6] = None
    return found


def _unknown(cells: NDArray[Any], _: np.random.Generator) -> NDArray[Any]:
    return np.where(cells == "now", "current", cells).astype(object)


ERRORS: dict[str, tuple[str, Callable[..., NDArray[Any]]]] = {
    "pounds for kilograms": ("weight", _numbers(lambda cells: cells * 2.2046)),
    "metres for centimetres": ("height", _numbers(lambda cells: cells / 100)),
    "degrees Fahrenheit": ("temperature", _numbers(lambda cells: cells * 9 / 5 + 32)),
    "heaping at tens": ("pressure", _numbers(lambda cells: np.round(cells, -1))),
    "swapped codes": ("sex", _swapped),
    "60 % more missing": ("smoker", _lost),
    "an unknown code": ("smoker", _unknown),
}


def dealt(table: Table, source: np.random.Generator, sizes: tuple[int, ...]) -> Blocks:
    """Deal the patients at random to hospitals of these sizes, so that nothing tells hospitals apart."""
    order = source.permutation(sum(sizes))
    parts = np.split(order, np.cumsum(sizes)[:-1])
    return {
        name: {key: cells[part] for key, cells in table.items()} for name, part in zip(HOSPITALS, parts, strict=True)
    }


def findings(asked: Sites, blocks: Blocks, source: np.random.Generator) -> set[Finding]:
    """Ask with fresh noise of four masked hospitals, and return what the answer names."""
    grid = asked.grid()
    std = grid.std * math.sqrt(SURVIVORS / SHARES)
    total = np.sum([asked.placed(asked.total(table, grid.spacing), name) for name, table in blocks.items()], axis=0)
    noised = (total + source.normal(0.0, std, total.size)) * grid.spacing
    answer = asked.answer(NoisedSum(noised, std * grid.spacing, 1))
    (table,) = [table for table in answer.tables if table.name == "findings"]
    return {(str(row[0]), str(row[1]), str(row[2])) for row in table.rows}


def question(columns: tuple[Declared, ...], epsilon: float) -> Sites:
    asked = sites(columns, 1 / mu_from_epsilon(epsilon, DELTA))
    return Sites.model_validate({**asked.model_dump(mode="json"), "hospitals": HOSPITALS})


def heart_runs(epsilon: float, runs: int) -> dict[str, Any]:
    """Both wrong codings of cholesterol, and everything else that was named."""
    blocks, asked = heart(), question(heart_columns(), epsilon)
    named = [findings(asked, blocks, np.random.default_rng([1, seed])) for seed in range(runs)]
    zero = "below 80"
    found = {name: sum((name, "chol", zero) in each for each in named) for name in ("switzerland", "va")}
    both = sum(all((name, "chol", zero) in each for name in ("switzerland", "va")) for each in named)
    unlike = [finding for each in named for finding in each if not _is_so(blocks, finding)]
    everything = sorted({finding for each in named for finding in each})
    return {
        "both": both,
        "found": found,
        "false": len(unlike),
        "runs_with_false": sum(any(not _is_so(blocks, finding) for finding in each) for each in named),
        "named": {" ".join(finding): sum(finding in each for each in named) for finding in everything},
    }


def null_runs(
    columns: tuple[Declared, ...],
    made: Callable[[np.random.Generator], Table],
    sizes: tuple[int, ...],
    epsilon: float,
    runs: int,
) -> dict[str, Any]:
    """Patients dealt at random: in how many runs anything is named."""
    asked = question(columns, epsilon)
    named = [
        findings(asked, dealt(made(source), source, sizes), source)
        for source in (np.random.default_rng([2, seed]) for seed in range(runs))
    ]
    return {"runs": runs, "runs_with_false": sum(map(bool, named))}


def planted_runs(error: str, sizes: tuple[int, ...], epsilon: float, runs: int) -> dict[str, Any]:
    """One error at the hospital of the second size: how often it is named, and how often another one or column."""
    column, change = ERRORS[error]
    asked = question(INVENTED, epsilon)
    found = false = 0
    for seed in range(runs):
        source = np.random.default_rng([3, seed])
        blocks = dealt(invented(sum(sizes), source), source, sizes)
        table = blocks[HOSPITALS[1]]
        table[column] = change(table[column], source)
        named = findings(asked, blocks, source)
        found += any(finding[:2] == (HOSPITALS[1], column) for finding in named)
        false += any(finding[:2] != (HOSPITALS[1], column) for finding in named)
    return {"found": found, "runs_with_false": false, "runs": runs}


def _is_so(blocks: Blocks, finding: Finding) -> bool:
    """Whether the records without noise bear it out: outside for more than 1 %, a share that differs from another's."""
    hospital, column, what = finding
    asked = question(heart_columns(), 1.0)
    spacing = asked.grid().spacing
    sums = {name: asked.total(table, spacing).astype(np.float64) * spacing for name, table in blocks.items()}
    exact = {name: asked.block_answer(NoisedSum(total, 0.0, 1)) for name, total in sums.items()}
    for place, kind in enumerate(("outside", "shares")):
        rows = {name: {row[:2]: row for row in answer.tables[place].rows} for name, answer in exact.items()}
        if (column, what) not in rows[hospital]:
            continue
        own = float(rows[hospital][column, what][2] or 0.0)
        if kind == "outside":
            return own > 0.01 * len(blocks[hospital][column])
        others = [float(rows[name][column, what][2] or 0.0) for name in blocks if name != hospital]
        error = 2 * math.sqrt(0.25 / len(blocks[hospital][column]))
        return any(abs(own - other) > error for other in others)
    raise AssertionError(finding)


def results(runs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    pooled = {name: np.concatenate([table[name] for table in heart().values()]) for name in _NAMES}
    # Else every hospital would have the wrong coding, and each finding of it would be right.
    pooled["chol"] = np.where(pooled["chol"] == "0", "?", pooled["chol"])
    sizes = (303, 294, 123, 200)
    for epsilon in EPSILONS:
        yield f"heart, ε {epsilon}", heart_runs(epsilon, runs)
        yield (
            f"heart dealt at random, ε {epsilon}",
            null_runs(heart_columns(), lambda _: pooled, sizes, epsilon, 20 * runs),
        )
        for each in ((300, 200, 300, 120), (3000, 2000, 1500, 4000)):
            ward = lambda source, each=each: invented(sum(each), source)  # noqa: E731
            yield f"invented {each}, ε {epsilon}", null_runs(INVENTED, ward, each, epsilon, 10 * runs)
            for error in ERRORS:
                yield f"{error}, {each}, ε {epsilon}", planted_runs(error, each, epsilon, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    written: dict[str, Any] = {}
    for name, result in results(chosen.runs):
        written[name] = result
        print(name, json.dumps(result, ensure_ascii=False), flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(written, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
