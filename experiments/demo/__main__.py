"""python -m experiments.demo: four hospitals train over HTTP until the privacy budget is spent."""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from experiments.demo import scenarios
from experiments.demo.run import Options, run
from experiments.demo.scenarios import DataMissing, Scenario
from experiments.demo.settings import settings
from experiments.processes import ProcessFailed

INTERRUPTED = 130


def main() -> int:
    options = _arguments().parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _as_interrupt)
    begun = time.monotonic()
    home = options.home or Path(tempfile.mkdtemp(prefix="wardround-demo-"))
    try:
        scenario = _scenario(options)
        study = settings(scenario, options.scheme, options.epsilon)
        run(scenario, study, Options(home, options.postgres, options.keep), console)
    except KeyboardInterrupt:
        console.print(f"interrupted; nothing runs any more, files are in {home}")
        return INTERRUPTED
    except DataMissing as error:
        console.print(f"[red]{error}[/]")
        return 2
    except ProcessFailed as error:
        console.print(f"[red]{error}[/]", soft_wrap=True, highlight=False)
        return 1
    console.print(f"[dim]{time.monotonic() - begun:.0f} seconds[/]")
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.demo", description=__doc__)
    parser.add_argument("--data", choices=("breast-cancer", "heart-disease", "mnist"), default="breast-cancer")
    parser.add_argument("--scheme", choices=("parallel", "client"), default="parallel")
    parser.add_argument("--epsilon", type=_positive, help="the Bayesian limit, instead of the data set's own")
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


def _scenario(options: argparse.Namespace) -> Scenario:
    if options.data == "mnist":
        return scenarios.mnist(options.clients, options.records)
    return scenarios.breast_cancer() if options.data == "breast-cancer" else scenarios.heart_disease()


def _as_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
