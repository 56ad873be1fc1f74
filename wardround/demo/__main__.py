"""python -m wardround.demo: four hospitals train over HTTP until the privacy budget is spent."""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
import time
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from accounting.errors import Unreachable
from wardround.demo import scenarios
from wardround.demo.own_patients import with_evaluation
from wardround.demo.processes import ProcessFailed
from wardround.demo.run import Options, run
from wardround.demo.scenarios import DataMissing, Scenario
from wardround.demo.settings import LEAST_WITH_ONE_TO_SPARE, settings

INTERRUPTED = 130


def main() -> int:
    parser = _arguments()
    options = parser.parse_args()
    if options.drop_out and (options.data != "breast-cancer" or options.hospitals < LEAST_WITH_ONE_TO_SPARE):
        parser.error("--drop-out needs --hospitals 5 or more: four are the fewest that a masked round accepts")
    if options.rounds is not None and options.scheme not in ("parallel", "sequential"):
        parser.error("--rounds needs --scheme parallel or sequential: the noise of the others is fixed")
    console = Console(width=None if sys.stdout.isatty() else 100)
    # Whoever started it in the background has had SIGINT ignored.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _as_interrupt)
    begun = time.monotonic()
    home = options.home or Path(tempfile.mkdtemp(prefix="wardround-demo-"))
    try:
        scenario = _scenario(options)
        study = settings(
            scenario,
            options.scheme,
            options.epsilon,
            masked=not options.unmasked,
            bayesian=options.bayesian,
            rounds=options.rounds,
        )
        study = with_evaluation(study)
        run(scenario, study, Options(home, options.postgres, options.keep, options.drop_out), console)
    except KeyboardInterrupt:
        console.print(f"interrupted; nothing runs any more, files are in {home}")
        return INTERRUPTED
    except DataMissing as error:
        console.print(f"[red]{error}[/]")
        return 2
    except ValidationError as error:
        reasons = "; ".join(problem["msg"] for problem in error.errors(include_input=False))
        console.print(f"[red]these settings make no study: {reasons}[/]", highlight=False)
        return 2
    except Unreachable as error:
        console.print(f"[red]{error}: choose a larger --epsilon[/]", highlight=False)
        return 2
    except ProcessFailed as error:
        console.print(f"[red]{error}[/]", soft_wrap=True, highlight=False)
        return 1
    console.print(f"[dim]{time.monotonic() - begun:.0f} seconds[/]")
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m wardround.demo", description=__doc__)
    parser.add_argument("--data", choices=("breast-cancer", "heart-disease", "mnist"), default="breast-cancer")
    parser.add_argument("--scheme", choices=("parallel", "sequential", "joint", "client"), default="parallel")
    parser.add_argument(
        "--hospitals", type=int, default=4, help="with --data breast-cancer (4 to 8; 5 bear a drop-out)"
    )
    parser.add_argument(
        "--drop-out", action="store_true", help="kill a hospital after round 2, start it again later (5 hospitals)"
    )
    parser.add_argument(
        "--unmasked",
        action="store_true",
        help="no secure sum (parallel, client)",
    )
    parser.add_argument("--epsilon", type=_positive, help="another limit; parallel, sequential: the noise follows it")
    parser.add_argument(
        "--rounds",
        type=_whole,
        help="so many fit the budget: the noise follows (parallel, sequential)",
    )
    parser.add_argument(
        "--bayesian",
        action="store_true",
        help="both definitions side by side, the Bayesian one read at the end (parallel, sequential)",
    )
    parser.add_argument("--clients", type=int, default=4, help="with --data mnist (default 4)")
    parser.add_argument("--records", type=int, default=2000, help="digits per client, with --data mnist (default 2000)")
    parser.add_argument("--postgres", action="store_true", help="on an embedded PostgreSQL instead of SQLite")
    parser.add_argument("--keep", action="store_true", help="leave the coordinator up at the end")
    parser.add_argument("--home", type=Path, help="where everything is put (default: a new temporary folder)")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError("a finite number above 0 is expected")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("a whole number above 0 is expected")
    return value


def _scenario(options: argparse.Namespace) -> Scenario:
    if options.data == "mnist":
        return scenarios.mnist(options.clients, options.records)
    if options.data == "heart-disease":
        return scenarios.heart_disease()
    return scenarios.breast_cancer(hospitals=options.hospitals)


def _as_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
