"""Adult over HTTP: seconds from the first question to the file, total variation, and a classifier trained on it.

    python -m research.synthesis.over_http [--hospitals 4] [--epsilon 1.0]

A coordinator and masked hospitals as processes of their own, and the commands that people type.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from accounting.budget.budget import replay
from accounting.budget.ledger import Entry
from research.synthesis.data import SPLITS, Cells, Split
from research.synthesis.judge import classified, mean_variation, section_of
from study_protocol.study.any_settings import settings_from
from study_protocol.study.synthesis import Synthesis
from synthesis.file import values_of
from wardround.cli.lead.templates import statistics_values
from wardround.demo.live import LiveCoordinator, LiveHospital, open_study
from wardround.demo.processes import Processes, environment

STUDY, DELTA = "adult", 1e-5
# Rounding to the grid and the cut tails of the noise take their part of the limit.
_OF_LIMIT = 0.9999
_JOIN_SECONDS = 30.0
_POLICY = f'studies = ["{STUDY}"]\nlargest_epsilon = 10.0\n[statistics]\nqueries = "ask"\n'


def section(split: Split, epsilon: float) -> Synthesis:
    """Return the settings of the questions, whose whole cost is ε."""
    judged = section_of(split, epsilon)
    return judged.model_copy(update={"allowance": judged.allowance * _OF_LIMIT})


def settings_of(synthesis: Synthesis, epsilon: float) -> dict[str, Any]:
    """Return a study that asks these questions and nothing else."""
    values = statistics_values(masked=True)
    values["privacy"]["limits"] = [values["privacy"]["limits"][0] | {"epsilon": epsilon, "delta": DELTA}]
    values["privacy"]["masking"] |= {"neighbours": None}
    values["statistics"] |= {"max_queries": 4, "max_cells": synthesis.most_cells()}
    return values | {"synthesis": synthesis.model_dump(mode="json")}


def write_records(path: Path, synthesis: Synthesis, codes: Cells) -> None:
    """Write one hospital's table, a row a patient, with a value in each cell's bin or category."""
    values = [[*values_of(variable)] for variable in synthesis.columns]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", *(variable.column for variable in synthesis.columns)])
        for number, row in enumerate(codes):
            cells = [values[place][cell] for place, cell in enumerate(row)]
            writer.writerow([f"p{number}", *("" if cell is None else cell for cell in cells)])


def codes_in(path: Path, synthesis: Synthesis) -> Cells:
    """Return the cells of a synthetic CSV file, shape (rows, columns)."""
    with path.open(newline="") as file:
        lines = list(csv.reader(file))[1:]
    columns = list[list[int]]()
    for place, variable in enumerate(synthesis.columns):
        cells = {"" if value is None else str(value): cell for cell, value in enumerate(values_of(variable))}
        columns.append([cells[line[place]] for line in lines])
    return np.array(columns, np.int64).T


def measured(folder: Path, hospitals: int, epsilon: float) -> dict[str, float]:
    split = SPLITS[STUDY](0)
    synthesis = section(split, epsilon)
    with Processes() as processes:
        coordinator = LiveCoordinator(folder / "coordinator", processes)
        coordinator.prepare()
        coordinator.serve()
        sites = dict[str, LiveHospital]()
        for place in range(hospitals):
            home = folder / f"h{place}"
            home.mkdir()
            write_records(home / "records.csv", synthesis, split.train[place::hospitals])
            sites[home.name] = LiveHospital(home.name, home / "wardround", home / "records.csv", "patient", processes)
        with coordinator.operator() as operator:
            chosen = settings_from(settings_of(synthesis, epsilon))
            open_study(operator, STUDY, "Adult", chosen, sites, coordinator.origin, policy=_POLICY)
            for site in sites.values():
                site.join(STUDY, coordinator.origin)
            # Until they have read their tables and wait for a question.
            time.sleep(_JOIN_SECONDS)
            processes.check()
            file, env = (
                folder / "synthetic.csv",
                environment(server=coordinator.origin, api_key_file=coordinator.operator_key_file),
            )
            begun = time.perf_counter()
            processes.run("synth", ["synth", STUDY, "-o", str(file)], env=env, log=folder / "synth.log")
            seconds = time.perf_counter() - begun
            begun = time.perf_counter()
            processes.run("verify", ["synth", "verify", str(file)], env=env, log=folder / "synth.log")
            verified = time.perf_counter() - begun
            ledger = [Entry.from_dict(entry.model_dump()) for entry in operator.ledger(STUDY).entries]
            operator.move_study(STUDY, "stop")
        print((folder / "synth.log").read_text())
    records = codes_in(file, synthesis)
    return {
        "epsilon": replay(ledger).accounts[0].epsilon(),
        "seconds": seconds,
        "seconds of verify": verified,
        "variation": mean_variation(split.sizes, split.train, records),
        "sampling": mean_variation(split.sizes, split.train, split.test),
        **classified(split, records),
        "real accuracy": classified(split, split.train)["accuracy"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hospitals", type=int, default=4)
    parser.add_argument("--epsilon", type=float, default=1.0)
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder:
        print(json.dumps(measured(Path(folder), chosen.hospitals, chosen.epsilon), indent=1))


if __name__ == "__main__":
    main()
