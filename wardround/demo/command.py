"""`wardround demo`: hospitals train over HTTP on this machine until the privacy budget is spent.

A process for each hospital and one for the coordinator, on data that come with scikit-learn: nothing of the repository
is needed.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from wardround.demo.scenarios import Scenario

INTERRUPTED = 130


def _positive(value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise typer.BadParameter("a finite number above 0 is expected")
    return value


DataSet = Annotated[
    Literal["breast-cancer", "heart-disease", "mnist"],
    typer.Option(help="data set to train on. The last two read files under WARDROUND_DATA"),
]
Scheme = Annotated[
    Literal["parallel", "sequential", "joint", "client"],
    typer.Option(help="privacy scheme"),
]
Hospitals = Annotated[int, typer.Option(help="4 to 8 with --data breast-cancer. At least 5 with --drop-out")]
DropOut = Annotated[
    bool, typer.Option("--drop-out", help="kill a hospital after round 2, start it again later (5 hospitals)")
]
Unmasked = Annotated[bool, typer.Option("--unmasked", help="no secure sum (parallel, client)")]
Epsilon = Annotated[
    float | None,
    typer.Option(callback=_positive, help="ε of another limit. Schemes parallel and sequential adapt the noise to it"),
]
Rounds = Annotated[
    int | None,
    typer.Option(min=1, help="rounds that fit the budget. Schemes parallel and sequential adapt the noise"),
]
Bayesian = Annotated[
    bool,
    typer.Option(
        "--bayesian", help="both definitions side by side, the Bayesian one read at the end (parallel, sequential)"
    ),
]
Clients = Annotated[int, typer.Option(help="with --data mnist", min=1)]
Digits = Annotated[int, typer.Option("--records", help="digits per client, with --data mnist")]
Postgres = Annotated[bool, typer.Option("--postgres", help="on an embedded PostgreSQL instead of SQLite")]
Keep = Annotated[bool, typer.Option("--keep", help="keep the coordinator running at the end")]
Home = Annotated[Path | None, typer.Option(help="folder for all files. Default: a new temporary folder")]


def demo(
    data: DataSet = "breast-cancer",
    scheme: Scheme = "parallel",
    hospitals: Hospitals = 4,
    drop_out: DropOut = False,
    unmasked: Unmasked = False,
    epsilon: Epsilon = None,
    rounds: Rounds = None,
    bayesian: Bayesian = False,
    clients: Clients = 4,
    records: Digits = 2000,
    postgres: Postgres = False,
    keep: Keep = False,
    home: Home = None,
) -> None:
    """Run a whole study on this machine: a coordinator and four hospitals, until the privacy budget is spent."""
    if os.name == "nt":
        print("wardround: the demonstration has a coordinator, which needs Linux or macOS", file=sys.stderr)
        raise typer.Exit(2)
    from rich.console import Console

    from wardround.demo.own_patients import with_evaluation
    from wardround.demo.processes import INTERRUPTS
    from wardround.demo.run import Options, run
    from wardround.demo.settings import LEAST_WITH_ONE_TO_SPARE, OTHER_SCHEMES, settings

    if drop_out and (data != "breast-cancer" or hospitals < LEAST_WITH_ONE_TO_SPARE):
        raise typer.BadParameter(
            "--drop-out needs --hospitals 5 or more: four are the fewest that a masked round accepts"
        )
    if rounds is not None and scheme in OTHER_SCHEMES:
        raise typer.BadParameter("--rounds needs --scheme parallel or sequential: the noise of the others is fixed")
    console = Console(width=None if sys.stdout.isatty() else 100)
    # A shell that starts this in the background makes it ignore SIGINT.
    for number in INTERRUPTS:
        signal.signal(number, _as_interrupt)
    begun = time.monotonic()
    folder = home or Path(tempfile.mkdtemp(prefix="wardround-demo-"))
    with _plain_errors(console, folder):
        scenario = _scenario(data, hospitals, clients, records)
        study = settings(scenario, scheme, epsilon, masked=not unmasked, bayesian=bayesian, rounds=rounds)
        run(scenario, with_evaluation(study), Options(folder, postgres, keep, drop_out), console)
    console.print(f"[dim]{time.monotonic() - begun:.0f} seconds[/]")


@contextmanager
def _plain_errors(console: Console, folder: Path) -> Generator[None]:
    """Print what stopped the demonstration as one sentence, and exit with its code."""
    from pydantic import ValidationError

    from accounting.errors import Unreachable
    from wardround.demo.processes import ProcessFailed
    from wardround.demo.scenarios import DataMissing

    try:
        yield
    except KeyboardInterrupt:
        console.print(f"interrupted. All processes have ended, files are in {folder}")
        raise typer.Exit(INTERRUPTED) from None
    except DataMissing as error:
        console.print(f"[red]{error}[/]")
        raise typer.Exit(2) from error
    except ValidationError as error:
        reasons = "; ".join(problem["msg"] for problem in error.errors(include_input=False))
        console.print(f"[red]these settings make no study: {reasons}[/]", highlight=False)
        raise typer.Exit(2) from error
    except Unreachable as error:
        console.print(f"[red]{error}: choose a larger --epsilon[/]", highlight=False)
        raise typer.Exit(2) from error
    except (ProcessFailed, OSError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True, highlight=False)
        raise typer.Exit(1) from error


def _scenario(data: str, hospitals: int, clients: int, records: int) -> Scenario:
    from wardround.demo import scenarios

    if data == "mnist":
        return scenarios.mnist(clients, records)
    if data == "heart-disease":
        return scenarios.heart_disease()
    return scenarios.breast_cancer(hospitals=hospitals)


def _as_interrupt(*_: object) -> None:
    raise KeyboardInterrupt
