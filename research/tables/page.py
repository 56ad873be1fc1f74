"""docs/tables.md, wholly from the results: nothing on the page is typed in by hand but its explanations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from accounting.values import rounded_up
from research.tables.catalogue import Entry
from research.tables.result import Papers, Row, Spent, standard_error

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
"Bayesian Differential Privacy for Machine Learning" (ICML 2020; Table 1), run again.

The papers compare a classical ε (DP) with a smaller Bayesian one (BDP) and the accuracy at each. Here ε is the
*worst case*: it holds for any client with any records. It is held at the papers' classical value, or even at their
Bayesian one, with the same number of clients, the same δ and the same split; the accuracy is to be compared with their
Bayesian column. Means ± standard errors are over seeds; each seed has a split and noise of its own.

```
python -m research.tables II --clients 100 --epsilon 8 --seeds 5   # measures a line again
python -m research.tables.choose --lines II/100/iid/8              # searches for its settings again
python -m research.tables --docs                                   # writes this page from the results
```

Every number on this page comes from `research/benchmarks/results/tables/`.
"""

_METHOD = """## How the lines of MNIST with clients are run

- **Model**: a linear map with ten outputs, zero at the start; each round every client sends one mean gradient over all
  of its records, clipped, and the coordinator adds discrete Gaussian noise to the sum (scheme `client`). The papers
  train a small convolutional network. Few rounds and few parameters need less noise.
- **Features**: a fixed scattering transform (`research/tables/scattering.py`), then the directions that separate
  *invented* handwriting best (Fisher's discriminant, `discriminant.py`): random strokes, each glyph written 20 times by
  a shaky hand (`strokes.py`). No image of MNIST, or of any other data set, is used for this; it costs no privacy. It is
  what makes most of the difference: the papers' network learns its features from the protected records.
- **Settings** were searched for on the last 10,000 training images (`choose.py`); the lines train on all 60,000
  and are judged by the test images. A search reads the records without noise, and no ε here pays for it; neither do the
  papers' ε pay for theirs. How much handwriting is invented, and how it is whitened, was chosen on the same images.
- **Splits**: at random, or two pieces of 300 images of one digit for each client. Above 100 clients the images are
  dealt again and again, as in the papers: an image is then at 10 or 100 clients. The ε of a client does not know of
  this; the ε of an image with all its copies is printed beside that of one record.
- **Both levels from one noise**: clipping to a ball never brings two points farther apart, so a record moves its
  client's clipped mean by no more than its own clip over the number of records. One noise therefore protects clients
  and records ([proof](definitions/both-levels.md)); both ε are printed. It holds for one gradient a round only.
- **Why the Bayesian number does not help**: with 100 clients as the only sample, no distribution-free estimate comes
  far below the worst case, whatever the clients send; the floor is printed beside each. The papers' smaller numbers
  rest on Student's t, a normal law that nothing supports ([as printed](definitions/as-printed.md)).

## How the lines with one data holder are run

- **Inputs of Abalone and Adult** are chosen, scaled and cut into bands by constants
(`research/bayesian/survey_data.py`) that
  were written by somebody who had looked at these public data sets. No ε pays for it.
- **Settings** were searched for with the splits of seeds 0 to 4, on a fifth of each one's training records, without any
  price in ε. No seed's own test records judge its search. But every seed deals the same records anew: a test record of
  one seed is a training record of most others, so that the search as a whole has seen it.
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
    parts += [_METHOD, _words()]
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
    return f"{_epsilon(each)} ({each.level}, δ {each.delta:g})"


def _epsilon(each: Spent) -> str:
    """Four digits, upwards: the page claims no less than was found."""
    return "∞" if each.epsilon is None else f"{rounded_up(each.epsilon, 4):g}"


def _epsilons(rows: Sequence[Row]) -> str:
    lines = ["| line | reading | level | ε | δ | how |", "|---|---|---|---|---|---|"]
    for row in rows:
        for each in row.spent:
            lines.append(
                f"| {row.name} | {each.kind} | {each.level} | {_epsilon(each)} | {each.delta:g} | {each.how} |"
            )
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
