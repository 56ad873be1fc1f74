"""docs/tables.md, wholly from the results: nothing on the page is typed in by hand but its explanations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.tables.catalogue import Entry
from experiments.tables.result import Papers, Row, Spent, standard_error

PAGE = Path("docs/tables.md")

KINDS = {
    "worst case": "for any client or record, by loss distributions; the number that this page compares",
    "certified": "Bayesian from held-out records, against an adversary who adapts",
    "bayesian": "Bayesian with a distribution-free estimator",
    "individual": "what 99 of 100 stay below",
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

The tables of Triastcyn & Faltings, "Federated Learning with Bayesian Differential Privacy" (2019; I to IV) and
"Bayesian Differential Privacy for Machine Learning" (ICML 2020; Table 1), run again. **Every number here comes from
`benchmarks/results/tables/`**; `python -m experiments.tables II --clients 100 --epsilon 8 --seeds 5` measures a line
again, `python -m experiments.tables --docs` writes this page.

The papers compare a classical ε (DP) with a smaller Bayesian one (BDP) at which their model is better. Here the
*worst-case* ε, which holds for any client with any records, is held at the papers' classical value or below, and the
accuracy is compared with the papers' Bayesian column: a stronger promise and a better model.
"""


def markdown(entries: Sequence[Entry], rows: Iterable[Row]) -> str:
    """The page. A line without a result says "not run"; one without records says what is missing."""
    known = {(row.table, row.name): row for row in rows}
    parts = [_HEAD]
    for table in dict.fromkeys(entry.table for entry in entries):
        here = [entry for entry in entries if entry.table == table]
        found = [known[key] for entry in here if (key := (entry.table, entry.name)) in known]
        parts += [f"## {TITLES.get(table, f'Table {table}')}\n", _accuracies(here, known)]
        if found:
            parts += [_epsilons(found), _settings(found)]
    parts.append(_words())
    return "\n".join(parts).rstrip("\n") + "\n"


def _accuracies(here: Sequence[Entry], known: dict[tuple[str, str], Row]) -> str:
    lines = [
        "| line | papers: without privacy / DP / BDP | papers' ε: DP / BDP | here | same steps, no noise "
        "| here: worst-case ε | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in here:
        row = known.get((entry.table, entry.name))
        cells = [entry.name, *_of_papers(entry.papers)]
        cells += (
            [f"not re-run: {entry.reason}" if entry.run is None else "not run", "", "", ""]
            if row is None
            else [
                f"**{_percent(row.accuracies)}**",
                _percent(row.without_noise),
                "; ".join(_spent(each) for each in row.spent if each.kind == "worst case"),
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


def _spent(each: Spent) -> str:
    epsilon = "∞" if each.epsilon is None else f"{each.epsilon:.4g}"
    return f"{epsilon} ({each.level}, δ {each.delta:g})"


def _epsilons(rows: Sequence[Row]) -> str:
    lines = ["| line | reading | level | ε | δ | how |", "|---|---|---|---|---|---|"]
    for row in rows:
        for each in row.spent:
            epsilon = "∞" if each.epsilon is None else f"{each.epsilon:.4g}"
            lines.append(f"| {row.name} | {each.kind} | {each.level} | {epsilon} | {each.delta:g} | {each.how} |")
    return "\n".join(lines) + "\n"


def _settings(rows: Sequence[Row]) -> str:
    lines: list[str] = []
    for row in rows:
        said = ", ".join(f"{key} {_value(value)}" for key, value in row.settings.items())
        notes = "".join(f" {note}" for note in row.notes)
        lines.append(f"- **{row.name}** ({row.data}; {row.split}): {said}. Found by {row.found_by}.{notes}")
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _words() -> str:
    lines = ["## How to read ε here\n"]
    return "\n".join([*lines, *(f"- **{kind}**: {meaning}." for kind, meaning in KINDS.items())]) + "\n"
