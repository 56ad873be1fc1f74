"""How good synthetic records are: `python -m research.synthesis.judge adult:1 adult:0.3 heart:1 --seeds 10`.

Prints a Markdown table, one row for a data set and ε (δ = 1e-5): mean total variation of all two-way tables against the
training records, and classifiers trained on synthetic records and judged on the held-out ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OneHotEncoder

from accounting.accountants.profile import mu_from_epsilon
from research.synthesis.data import SPLITS, Cells, Split
from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.marginals import Marginals
from study_protocol.study.queries import PublishedAnswer, QueryDocument, QueryNoise
from study_protocol.study.synthesis import Synthesis
from synthesis.chain import follow
from synthesis.model.make import make_records
from synthesis.model.noised import Noised
from synthesis.released import noised_of

_DELTA, _ROWS = 1e-5, 100_000
Figures = Mapping[str, float]
Case = tuple[str, float]
"""A data set and ε."""


def section_of(split: Split, epsilon: float) -> Synthesis:
    """The settings whose questions cost (ε, δ) together."""
    return Synthesis(
        columns=split.variables,
        outcome=split.variables[split.outcome].column,
        allowance=mu_from_epsilon(epsilon, _DELTA) ** 2,
        rows=_ROWS,
    )


@dataclass
class Hospitals:
    """Answers questions with exact counts and Gaussian noise, as masked sums do. answered: so far, by digest."""

    codes: Cells
    random: np.random.Generator
    answered: dict[str, PublishedAnswer]

    def ask(self, synthesis: Synthesis) -> None:
        while (document := follow(synthesis, self.answered.get).document) is not None:
            self.answered[document.digest()] = self._answer(document)

    def _answer(self, document: QueryDocument) -> PublishedAnswer:
        question = document.question
        assert isinstance(question, Marginals)
        cells = [
            np.array(groups)[self.codes[:, column]] if groups else self.codes[:, column]
            for column, groups in enumerate(question.groups or ((),) * self.codes.shape[1])
        ]
        std = question.noise_multiplier * question.sensitivity
        counts = np.concatenate(
            [
                counted([cells[column] for column in clique], shape) * times
                for clique, shape, times in zip(question.cliques, question.shapes, question.times, strict=True)
            ]
        )
        return PublishedAnswer(
            study="judged",
            query=question.stage,
            sha256=document.digest(),
            round=question.stage,
            hospitals=4,
            noise=QueryNoise(guaranteed=std, present=std, spacing=question.grid().spacing),
            answer=question.answer(NoisedSum(counts + self.random.normal(0, std, len(counts)), std, 1)),
            warning="",
            ledger_entries=question.stage,
            ledger_sha256="0" * 64,
        )


def counted(places: Sequence[Cells], shape: Sequence[int]) -> Cells:
    """Records of each cell of a table, row by row."""
    return np.bincount(np.ravel_multi_index(tuple(places), tuple(shape)), minlength=int(np.prod(shape)))


def mean_variation(sizes: Sequence[int], left: Cells, right: Cells) -> float:
    """Mean total variation distance of all two-way tables."""
    found: list[float] = []
    for pair in combinations(range(len(sizes)), 2):
        shape = [sizes[column] for column in pair]
        shares = [counted([cells[:, column] for column in pair], shape) / len(cells) for cells in (left, right)]
        found.append(float(np.abs(shares[0] - shares[1]).sum()) / 2)
    return float(np.mean(found))


def classified(split: Split, records: Cells) -> Figures:
    """Accuracy in percent and AUC on the held-out records of classifiers trained on these."""
    encoder = OneHotEncoder(categories=[np.arange(size) for size in split.sizes[:-1]]).fit(split.test[:1, :-1])
    labels, truth = records[:, -1] == 1, split.test[:, -1] == 1
    linear = LogisticRegression(max_iter=300).fit(encoder.transform(records[:, :-1]), labels)
    said = linear.predict_proba(encoder.transform(split.test[:, :-1]))[:, 1]
    boosted = HistGradientBoostingClassifier(random_state=0).fit(records[:, :-1], labels)
    return {
        "accuracy": 100 * float(((said > 0.5) == truth).mean()),
        "AUC": float(roc_auc_score(truth, said)),
        "boosting AUC": float(roc_auc_score(truth, boosted.predict_proba(split.test[:, :-1])[:, 1])),
    }


def asked(split: Split, epsilon: float, seed: int) -> Noised:
    """The answers to all questions of the rule."""
    hospitals, section = Hospitals(split.train, np.random.default_rng([seed, 5]), {}), section_of(split, epsilon)
    hospitals.ask(section)
    return noised_of(section, follow(section, hospitals.answered.get))


def judged(split: Split, epsilon: float, seed: int) -> Figures:
    """The figures of one run of all questions."""
    noised = asked(split, epsilon, seed)
    start = time.process_time()
    records = make_records(noised, _ROWS, seed)
    seconds = time.process_time() - start
    return {
        "edges": len(noised.edges),
        "variation": mean_variation(split.sizes, split.train, records),
        "sampling": mean_variation(split.sizes, split.train, split.test),
        **classified(split, records),
        "seconds": seconds,
    }


def runs(cases: Sequence[Case], seeds: Iterable[int], *, validates: bool) -> Iterator[tuple[Case, int, Figures]]:
    """The figures of each case, seed by seed, so that an interrupted measurement has all tables."""
    # Some tables have one split for all seeds.
    known = dict[str, tuple[Cells, Figures]]()
    for seed in seeds:
        for name, epsilon in cases:
            split = SPLITS[name](seed).validation(seed) if validates else SPLITS[name](seed)
            if name not in known or not np.array_equal(split.train, known[name][0]):
                real = {f"real {key}": figure for key, figure in classified(split, split.train).items()}
                known[name] = split.train, real
            yield (name, epsilon), seed, {**judged(split, epsilon, seed), **known[name][1]}


def logged(lines: Iterable[str]) -> Iterator[tuple[Case, Figures]]:
    """The figures in a log of `main`. Lines that another program wrote are passed over."""
    for line in lines:
        if line.startswith("{"):
            entry = json.loads(line)
            yield (entry["data"], entry["epsilon"]), entry["figures"]


def table_of(found: Iterable[tuple[Case, Figures]]) -> str:
    """The Markdown table, a row for each case. The last column says how many seeds it has."""
    by_case = dict[Case, list[Figures]]()
    for case, figures in found:
        by_case.setdefault(case, []).append(figures)
    scores = (f"{name} (real)" for name in ("accuracy", "AUC", "boosting AUC"))
    titles = ("data", "ε", "edges", "variation (sampling)", *scores, "CPU s", "seeds")
    rows = [row_of(name, epsilon, figures) for (name, epsilon), figures in by_case.items()]
    return "\n".join([f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", *rows])


def row_of(name: str, epsilon: float, found: Sequence[Figures]) -> str:
    """One line of the table: means, and the standard deviation over seeds of what is compared with a goal."""
    mean = {key: float(np.mean([figures[key] for figures in found])) for key in found[0]}
    spread = {key: float(np.std([figures[key] for figures in found])) for key in found[0]}
    cells = [
        name,
        f"{epsilon:g}",
        f"{mean['edges']:.1f}",
        f"{mean['variation']:.4f} ± {spread['variation']:.4f} ({mean['sampling']:.4f})",
        f"{mean['accuracy']:.1f} ± {spread['accuracy']:.1f} ({mean['real accuracy']:.1f})",
        *(f"{mean[key]:.3f} ± {spread[key]:.3f} ({mean[f'real {key}']:.3f})" for key in ("AUC", "boosting AUC")),
        f"{mean['seconds']:.1f}",
        f"{len(found)}",
    ]
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> None:
    """Print the table. Standard error gets the figures of each run, from which --log makes the table again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="data set and ε, such as adult:0.3")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--validation", action="store_true", help="judge on a part of the training records")
    parser.add_argument("--log", type=Path, help="measure nothing: print the table of such a log")
    chosen = parser.parse_args(arguments)
    if chosen.log is not None:
        print(table_of(logged(chosen.log.read_text().splitlines())))
        return
    cases = [(name, float(epsilon)) for name, _, epsilon in (case.rpartition(":") for case in chosen.cases)]
    found = list[tuple[Case, Figures]]()
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    for case, seed, figures in runs(cases, seeds, validates=chosen.validation):
        entry = {"data": case[0], "epsilon": case[1], "seed": seed, "figures": figures}
        print(json.dumps(entry), file=sys.stderr, flush=True)
        found.append((case, figures))
    print(table_of(found))


if __name__ == "__main__":
    main(sys.argv[1:])
