"""The table of `wardround simulate --compare-encodings`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wardround.cli.shared.shared import print_json, say, table

if TYPE_CHECKING:
    from simulation.report import SeedSpread
    from simulation.runs import Simulation

# No further seed begins after so many seconds. One seed says nothing about the spread.
_SECONDS, _MIN_SEEDS = 90.0, 3


def compare(simulation: Simulation, first_seed: int, seeds: int, *, as_json: bool) -> None:
    """Print what a study reaches with its own encodings and with others, under the same seeds.

    Raises:
        ConfigurationError: the task does not read declared columns.
    """
    from simulation.encodings import compare_encodings

    seeds = max(seeds, _MIN_SEEDS)
    own, *others = every = compare_encodings(simulation, range(first_seed, first_seed + seeds), _SECONDS)
    if as_json:
        print_json({"encodings": [each.to_dict() for each in every]})
        return
    done, metric = len(own.report.runs), own.report.metric or "metric"
    rows = [[own.name, _spread(own.report.reached), ""]]
    rows += [[each.name, _spread(each.report.reached), _spread(each.gain(own), sign="+")] for each in others]
    table(f"Encodings, {done} seeds, the same limits", ["columns", metric, f"beside {own.name}"], rows)
    if done < seeds:
        say(f"note: after {_SECONDS:g} seconds no further of the {seeds} seeds began", err=True)
    if others and others[-1].columns:
        say(f"{others[-1].name}, from these records:")
        for name, text in others[-1].columns.items():
            say(f'  "column.{name}" = "{text}"')
        say(
            "These numbers are computed from the records. Settings with them would show patients' values to everyone, "
            "outside every budget. Write numbers from public knowledge, or ask the hospitals for quantiles"
        )


def _spread(value: SeedSpread | None, sign: str = "") -> str:
    if value is None:
        return ""
    mean = f"{value.mean:{sign}.3f}"
    return mean if value.deviation is None else f"{mean} ± {value.deviation:.3f}"
