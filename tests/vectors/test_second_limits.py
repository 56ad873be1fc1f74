"""The project's budget and the second reader's limits over random plans, and over ledgers of older versions.

The seeds are fixed: there are no false alarms. Plans that cannot begin are drawn again.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import pytest

from accounting.budget.budget import Budget
from accounting.errors import AccountingError
from accounting.plan.report import report_from_dict
from accounting.plan.schemes import TRAINING_SCHEMES
from accounting.plan.statistics import plan_from_dict
from tests.goldens.test_old_ledgers import KINDS, STUDIES, renamed, replayed
from tests.vectors.second_reader import compare_numbers
from tests.vectors.second_study import Study

Json = dict[str, Any]
BINS = 64


class Course:
    """A plan and what happens under it, drawn from a seed; the budget and the second reader are told the same."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        while True:
            plan = self._plan()
            try:
                self.budget = Budget.open(plan_from_dict(plan))
                break
            except AccountingError:
                continue
        self.plan, self.study, self.moments = plan, Study(plan), [0.0] * 4
        self.reports: list[Any] = []

    def run(self) -> None:
        """Up to eight rounds, the last one sometimes under way, the study sometimes finished."""
        number, asks = 0, self.plan["queries"] is not None
        for _ in range(self.draw.randint(1, 8)):
            number += self.draw.randint(1, 2)
            trains = self.plan["scheme"] != "statistics" and not (asks and self.draw.random() < 0.5)
            kind, body = ("reserved", {}) if trains else ("asked", {"query": "0" * 64, "cost": self._cost()})
            if not self._tell(kind, number, body):
                return
            if self.draw.random() < 0.1:
                return
            self._close(number, trains)
        if self.draw.random() < 0.4:
            at_end = self.plan["scheme"] != "statistics" and self.plan["disclosure"] == "at-end"
            self._tell("finished", None, {"reason": "stopped", "report": self.reports if at_end else None})

    def _close(self, number: int, trains: bool) -> None:
        kind = self.draw.choices(["settled", "charged-in-full", "cancelled"], [6, 1, 1])[0]
        report = self._report() if trains and kind == "settled" and self.draw.random() < 0.9 else None
        if trains and kind != "cancelled":
            self.reports.append(report)
        withheld = self.plan["scheme"] != "statistics" and self.plan["disclosure"] == "at-end"
        body = {"report": None if withheld else report} if kind == "settled" else {"reason": "too-few-clients"}
        assert self._tell(kind, number, body)

    def _tell(self, kind: Any, number: int | None, body: Json) -> bool:
        try:
            self.budget.happen(1, kind, number, body)
        except AccountingError:
            assert kind in ("reserved", "asked")
            return False
        self.study.apply(kind, number or 0, body)
        return True

    def wrong(self) -> list[str]:
        stated = json.loads(json.dumps(self.budget.statements()))
        return compare_numbers(self.study, stated, self.budget.percentiles())

    # -- what is drawn

    def _plan(self) -> Json:
        draw = self.draw
        scheme = draw.choice([*TRAINING_SCHEMES, "statistics"])
        if scheme == "statistics":
            limits = [self._limit("instance", "classical")]
            queries = {"max_queries": 20, "max_cells": draw.choice([1, 1000]), "allowance": None, "evaluation": None}
            return {"scheme": scheme, "limits": limits, "queries": queries, "observer": "coordinator"}
        rules = TRAINING_SCHEMES[scheme]
        estimated, levels = draw.random() < 0.7, [str(level) for level in rules.levels]
        disclosure = draw.choice(["plain", "noised", "at-end"]) if estimated else "plain"
        steps = 1 if rules.pooled else draw.choice([1, 1, 2])
        bayesian = self._bayesian(rules.compositions) if estimated else None
        if bayesian is not None and disclosure == "noised":
            # Others may fall when a count moves up, and settings refuse them.
            bayesian["estimator"] = draw.choice(["betting", "band"])
        asks = levels == ["instance"] and draw.random() < 0.4
        definitions = ("classical", "bayesian") if estimated else ("classical",)
        noised = disclosure == "noised"
        return {
            "scheme": scheme,
            "limits": [self._limit(level, definition) for level in levels for definition in definitions],
            "clip_norm": draw.choice([0.5, 1.0]),
            "client_clip_norm": 2.0 if rules.bounds_clients_too else None,
            "noise_multiplier": draw.uniform(1.0, 6.0),
            "honest_survivors": draw.randint(1, 4) if rules.pooled else 1,
            "sampling_rate": draw.choice([1.0, draw.uniform(0.05, 0.9)]),
            "steps_per_round": steps,
            "max_steps": steps * draw.randint(2, 8),
            "classical_order": draw.choice([4.0, 7.0, draw.uniform(2.0, 12.0)]),
            "bayesian": bayesian,
            "disclosure": disclosure,
            "release": {"std": draw.choice([6.0, 12.0, 25.0]), "every": draw.randint(1, 2)} if noised else None,
            "observer": "releases",
            "queries": self._queries(bayesian) if asks else None,
        }

    def _limit(self, level: str, definition: str) -> Json:
        failure = 1e-4 if definition == "bayesian" else None
        wide = {"epsilon": self.draw.choice([8.0, 30.0, 45.0]), "delta": self.draw.choice([1e-5, 1e-3])}
        wide |= {"delta": 1e-3, "epsilon": 60.0} if failure else {}
        return {"level": level, "definition": definition, "estimator_failure_probability": failure, **wide}

    def _bayesian(self, compositions: Any) -> Json:
        draw = self.draw
        return {
            "orders": [2.0, 4.0, draw.uniform(5.0, 9.0)],
            "filter_order": draw.choice([4.0, draw.uniform(2.5, 6.0)]),
            "estimator": draw.choice(["student-t", "betting", "band", "bernstein"]),
            "composition": draw.choice(compositions),
            "adversary": draw.choice(["path", "adaptive"]),
            "conversion": draw.choice(["improved", "chernoff"]),
            "sample": "members",
        }

    def _queries(self, bayesian: Json | None) -> Json:
        draw, evaluation = self.draw, None
        if draw.random() < 0.6:
            cost = {"noise_std": 2.0**20, "sensitivity": 2.0**17, "cells": 9, "bears": "evaluated"}
            scheduled = draw.random() < 0.6
            evaluation = {"every": 2 if scheduled else None, "cost": cost if scheduled else None}
        allowance = 0.3 if bayesian and bayesian["adversary"] == "path" else None
        return {"max_queries": 20, "max_cells": 100, "allowance": allowance, "evaluation": evaluation}

    def _cost(self) -> Json:
        queries = self.plan["queries"]
        bears = self.draw.choice(["all", "evaluated"]) if queries["evaluation"] else "all"
        if bears == "evaluated" and queries["evaluation"]["cost"] and self.draw.random() < 0.7:
            return queries["evaluation"]["cost"]
        std = self.draw.choice([2.0**20, 1.5e6])
        return {"noise_std": std, "sensitivity": std / self.draw.uniform(3.0, 12.0), "cells": 1, "bears": bears}

    def _report(self) -> Any:
        """As hospitals might have reported; None where nothing is estimated."""
        if self.plan["bayesian"] is None:
            return None
        levels = [str(level) for level in TRAINING_SCHEMES[self.plan["scheme"]].levels]
        clients, records = self._counts(), self._moments()
        found = clients if levels == ["client"] else records
        found = {"clients": clients, "records": records} if len(levels) == 2 else found
        assert report_from_dict(found) is not None
        return found

    def _counts(self) -> Json:
        draw, release = self.draw, self.plan["release"]
        size = draw.choice([2, 5, 40, 200])
        counts = [0] * BINS
        for _ in range(size):
            counts[min(BINS - 1, int(draw.gammavariate(2.0, 8.0)))] += 1
        if release is None:
            return {"counts": counts}
        std = release["std"] * draw.choice([1.0, 1.5])
        return {"counts": [c + round(draw.gauss(0, std)) for c in counts], "sample_size": size, "count_noise": std}

    def _moments(self) -> Json:
        self.moments = [old + self.draw.expovariate(10.0) for old in self.moments]
        complete = self.draw.random() < 0.5
        found: Json = {"filter": self.moments[0], "moments": self.moments[1:], "complete": complete}
        if self.plan["scheme"] == "sequential" and self.draw.random() < 0.9:
            found["papers"] = [self.draw.random() for _ in range(3)]
        return found


class CountedCourse(Course):
    """A plan whose limits are kept by counting, with questions and a falling noise in some of them."""

    def _plan(self) -> Json:
        draw, plan = self.draw, super()._plan()
        while plan["scheme"] == "statistics":
            plan = super()._plan()
        plan |= {"bayesian": None, "disclosure": "plain", "release": None}
        rule = draw.choice(["fixed-plan", "gaussian-filter"])
        plan["limits"] = [
            one | {"enforcement": rule, "epsilon": draw.choice([2.0, 6.0])}
            for one in plan["limits"]
            if one["definition"] == "classical"
        ]
        plan["sampling_rate"] = 1.0 if rule == "gaussian-filter" else draw.choice([0.1, 0.4])
        if plan["queries"] is not None:
            plan["queries"] |= {"allowance": None} | ({"share": 0.3} if rule == "fixed-plan" else {})
        if draw.random() < 0.4:
            rounds = plan["max_steps"] // plan["steps_per_round"]
            plan["noise_schedule"] = [{"rounds": rounds - 1, "factor": 1.25}, {"rounds": 1, "factor": 1.0}]
        return plan


def follow(seed: int, kind: type[Course] = Course) -> list[str]:
    course = kind(seed)
    course.run()
    return course.wrong()


@pytest.mark.parametrize("seed", range(12))
def test_random_courses_cost_what_the_reader_says(seed: int) -> None:
    assert follow(seed) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 150))
def test_more_random_courses_cost_what_the_reader_says(seed: int) -> None:
    assert follow(seed) == []


@pytest.mark.slow_cases("1", "4")
@pytest.mark.parametrize("seed", range(6))
def test_random_counted_courses_are_what_the_reader_says(seed: int) -> None:
    assert follow(seed, CountedCourse) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 80))
def test_more_random_counted_courses_are_what_the_reader_says(seed: int) -> None:
    assert follow(seed, CountedCourse) == []


def older(entries: list[Json]) -> Study:
    """What a ledger of an older version says happened."""
    study = Study(renamed(entries[0]["body"]["plan"]) | {"queries": None})
    for entry in entries[1:]:
        body = {"report": None} | renamed(entry["body"])
        study.apply(KINDS.get(entry["kind"], entry["kind"]), entry["round"], body)
    return study


@pytest.mark.parametrize("place", range(0, len(STUDIES), 12), ids=str)
def test_ledgers_of_older_versions_cost_what_the_reader_says(place: int) -> None:
    _compare_older(place)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(STUDIES)), ids=str)
def test_all_ledgers_of_older_versions_cost_what_the_reader_says(place: int) -> None:
    _compare_older(place)


def _compare_older(place: int) -> None:
    entries = STUDIES[place]["entries"]
    budget = replayed(entries)
    stated = json.loads(json.dumps(budget.statements()))
    assert compare_numbers(older(entries), stated, budget.percentiles()) == []


def test_the_reader_loads_nothing_of_the_project() -> None:
    """In a process of its own: neither our packages nor the libraries that these compute with."""
    ask = "import sys, tests.vectors.second_reader; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    theirs = {
        "accounting",
        "client_sdk",
        "server",
        "simulation",
        "wardround",
        "numpy",
        "scipy",
        "torch",
        "cryptography",
    }
    assert "mpmath" in done.stdout.split()
    assert not theirs & set(done.stdout.split())
