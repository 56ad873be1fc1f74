"""docs/tables.md, wholly from the results: nothing on the page is typed in by hand but its explanations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from accounting.values import rounded_up
from research.tables.catalogue import CatalogueEntry
from research.tables.result import EpsilonReading, Papers, Row, standard_error

PAGE = Path("docs/tables.md")

KINDS = {
    "worst case": "for any client or record, by loss distributions. The first tables compare this number",
    "certified": "Bayesian from held-out records, against an adversary who adapts",
    "bayesian": "Bayesian with a distribution-free estimator",
    "individual": "the bound that 99 of 100 stay below",
    "papers": "the papers' accounting as printed (Student's t, Hölder, Chernoff), on the same run",
    "other reading": "classical, with another meaning of a word in the paper",
}

TITLES = {
    "I": "Table I: clients are protected, MNIST, every client has few digits",
    "II": "Table II: clients are protected, MNIST, records dealt at random",
    "III": "Table III: clients are protected, APTOS 2019",
    "IV": "Table IV: clients and records are protected by one noise",
    "ICML": "Table 1 of the ICML paper: records are protected, one data holder",
}

_HEAD = """# The papers' tables at worst-case ε

This page repeats the tables of two papers by Triastcyn & Faltings. Tables I to IV are from "Federated Learning with
Bayesian Differential Privacy" (2019). Table 1 is from "Bayesian Differential Privacy for Machine Learning" (ICML 2020).

```
python -m research.tables II --clients 100 --epsilon 8 --seeds 5   # measures a line again
python -m research.tables.choose --lines II/100/iid/8              # searches for its settings again
python -m research.tables III --folder images --backbone net.onnx  # your own pictures, through a frozen network
python -m research.tables ICML --data cifar-10 --folder cifar-10-batches-bin
python -m research.tables --docs                                   # writes this page from the results
```

The papers compare a classical ε (DP) with a smaller Bayesian one (BDP), and the accuracy at each. Our ε is the *worst
case*: it holds for any client with any records. Its value is the papers' classical ε, or even their Bayesian ε. The
number of clients, δ and the split are the papers', with δ = 1e-5 for records. Compare the accuracy with their Bayesian
column. Means ± standard errors are over seeds, each with its own split and noise. `research/benchmarks/results/tables/`
holds every number and setting. [How to read ε here](#how-to-read-ε-here) explains the numbers in brackets.
"""

_METHOD = """## How the lines of MNIST with clients are run

- **Model**: a linear map with ten outputs, zero at the start. In each round every client sends one clipped mean
  gradient over all of its records. The coordinator adds discrete Gaussian noise to the sum (scheme `client`). The
  papers train a small convolutional network.
- **Features**: a fixed scattering transform (`research/tables/scattering.py`) and Fisher's discriminant
  (`discriminant.py`), which separates *invented* handwriting (`strokes.py`). No image of any data set is used, so it
  costs no privacy. It makes most of the difference.
- **Settings** were searched for on the last 10,000 training images, and for PneumoniaMNIST on the validation X-rays
  (`choose.py`). The lines train on all 60,000 and are judged by the test images. No ε pays for a search, here or in
  the papers. The invented handwriting was chosen on the same images.
- **Splits**: at random, or (Table I, non-iid) two pieces of 300 images of one digit for each client. Six of 200 pieces
  mix digits. Above 100 clients an image is at 10 or 100 clients, as in the papers. The ε of a client ignores this. The
  ε of an image with all its copies stands beside that of one record.
- **Both levels from one noise** ([proof](definitions/both-levels.md)): this holds for one gradient a round only.
- **The Bayesian number does not help**: from only 100 clients no distribution-free estimate comes far below the worst
  case. The papers' smaller numbers rest on Student's t, a normal law without support ([as
  printed](definitions/as-printed.md)).

## How the lines with one data holder are run

- **Inputs of Abalone and Adult** are chosen, scaled and cut into bands by constants
  (`research/bayesian/survey_data.py`). Their author had looked at these public data sets. No ε pays for it.
- **Settings** were searched for with the splits of seeds 0 to 4, on a fifth of the training records
  (`python -m research.bayesian.inference_search`). It has seen most test records, and no ε pays for it. "MNIST as
  the papers train it" has the settings of the thesis (5.5.2).
- **Test records**: a fifth held out by each seed. MNIST has its official test images.
"""


def markdown(entries: Sequence[CatalogueEntry], rows: Iterable[Row]) -> str:
    """The page. A line without a result says "not run"; one without records says what is missing."""
    row_by_key = {(row.table, row.name): row for row in rows}
    computations: dict[str, int] = {}
    parts = [_HEAD]
    for table in dict.fromkeys(entry.table for entry in entries):
        entries_of_table = [entry for entry in entries if entry.table == table]
        rows_of_table = [
            row_by_key[key] for entry in entries_of_table if (key := (entry.table, entry.name)) in row_by_key
        ]
        parts += [
            f"## {TITLES.get(table, f'Table {table}')}\n",
            _accuracies(entries_of_table, row_by_key, computations),
        ]
        if rows_of_table:
            parts += [_readings(rows_of_table, computations), _notes(rows_of_table)]
    parts += [_METHOD, _legend(computations)]
    return "\n".join(parts).rstrip("\n") + "\n"


def _accuracies(
    entries: Sequence[CatalogueEntry], row_by_key: dict[tuple[str, str], Row], computations: dict[str, int]
) -> str:
    lines = [
        "| line | papers: without privacy / DP / BDP | papers' ε: DP / BDP | ours | ours without noise "
        "| our worst-case ε | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in entries:
        row = row_by_key.get((entry.table, entry.name))
        cells = [entry.name, *_of_papers(entry.papers)]
        cells += (
            [f"not re-run: {entry.reason}" if entry.run is None else "not run", "", "", ""]
            if row is None
            else [
                f"**{_percent(row.accuracies)}**",
                _percent(row.without_noise),
                _spent(row, "worst case", computations),
                str(len(row.seeds)),
            ]
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _of_papers(papers: Papers) -> tuple[str, str]:
    accuracy = " / ".join(
        f"{papers.accuracy[key]:g}" for key in ("without privacy", "DP", "BDP") if key in papers.accuracy
    )
    epsilon = " / ".join(f"{papers.epsilon[key]:g}" for key in ("DP", "BDP") if key in papers.epsilon)
    return accuracy, f"{epsilon} (δ {papers.delta:g})"


def _percent(shares: Sequence[float]) -> str:
    if not shares:
        return ""
    mean = 100 * sum(shares) / len(shares)
    return f"{mean:.2f} ± {standard_error(shares):.2f}" if len(shares) > 1 else f"{mean:.2f}"


def _spent(row: Row, kind: str, computations: dict[str, int]) -> str:
    """Every ε of this kind. Each text that says how one was computed gets a number in `computations`."""
    cells: list[str] = []
    for each in row.spent:
        if each.kind == kind:
            # The sentences after the first are about this line alone, and stay in its result.
            number = computations.setdefault(each.how.partition(". ")[0], len(computations) + 1)
            cells.append(f"{_epsilon(each)} [{number}]")
    return ", ".join(cells)


def _epsilon(each: EpsilonReading) -> str:
    """Four digits, upwards: the page claims no less than was found."""
    return "∞" if each.epsilon is None else f"{rounded_up(each.epsilon, 4):g}"


def _readings(rows: Sequence[Row], computations: dict[str, int]) -> str:
    """A line for each row, with a column for each kind of ε but the worst case."""
    spent = {each.kind for row in rows for each in row.spent}
    kinds = [kind for kind in KINDS if kind in spent and kind != "worst case"]
    lines = [f"| line | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for row in rows:
        cells = [row.name, *(_spent(row, kind, computations) for kind in kinds)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _notes(rows: Sequence[Row]) -> str:
    """The notes, each with the lines that share it."""
    notes: dict[str, list[str]] = {}
    for row in rows:
        for note in row.notes:
            notes.setdefault(note, []).append(row.name)
    return "".join(f"- **{_lines(names, len(rows))}**: {note}\n" for note, names in notes.items())


def _lines(names: Sequence[str], total: int) -> str:
    return "all" if len(names) == total > 1 else " and ".join(names)


def _legend(computations: dict[str, int]) -> str:
    lines = ["## How to read ε here\n", *(f"- **{kind}**: {meaning}." for kind, meaning in KINDS.items())]
    lines += ["", "| number | computation |", "|---|---|"]
    lines += [f"| {number} | {computation} |" for computation, number in computations.items()]
    return "\n".join(lines) + "\n"
