"""Coverage-guided fuzzing of one parser: python -m tests.harness.fuzzing.run TARGET [--minutes 10] [--list]

Needs the package atheris, which the extra `fuzz` installs. What was generated lies in `.campaigns/corpus/TARGET`, and
the next run begins from it. An input at which the parser fails lies in `.campaigns/faults/TARGET-…`. Mend the parser,
and put the input into `tests/harness/fuzzing/inputs/TARGET/`. `make test` tries it from then on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from tests.harness.fuzzing.mutation import mutate_json
from tests.harness.fuzzing.target import Target

ROOT = Path(__file__).parents[3]
INSTRUMENTED = ("accounting", "study_protocol", "private_learning", "client_sdk", "server")
_MODULES = ("wire_targets", "study_targets", "record_targets", "coordinator_target")
# Known without importing what is fuzzed: it must be imported while atheris watches.
NAMES = (
    *("json", "messages", "session-parameters", "shares", "tensors", "tensor-files", "finished-vectors", "tokens"),
    *("headers", "written", "settings", "policy", "objections", "questions", "ledger-export", "ledger-entries"),
    *("certificates", "models", "tables", "table-formats", "arrays", "column-files", "pictures", "scans"),
    "coordinator",
)


def targets() -> Mapping[str, Target]:
    """Every parser by name, in the order of `NAMES`."""
    targets: dict[str, Target] = {}
    for module in _MODULES:
        targets |= import_module(f"tests.harness.fuzzing.{module}").TARGETS
    return {name: targets.pop(name) for name in NAMES} | targets


def _fuzz(name: str, seconds: int, folder: Path) -> NoReturn:
    """Fuzz until the time is over. The process ends with 0, or with another code at the first fault."""
    try:
        import atheris as untyped  # pyright: ignore[reportMissingModuleSource, reportMissingImports]
    except ImportError:
        sys.exit("fuzzing needs the package atheris: pip install -c constraints.txt -e '.[test,fuzz]'")
    atheris: Any = untyped
    with atheris.instrument_imports(include=list(INSTRUMENTED), enable_loader_override=False):
        target = targets()[name]
    corpus, faults = folder / "corpus" / name, folder / "faults"
    corpus.mkdir(parents=True, exist_ok=True)
    faults.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = (
        f"-max_total_time={seconds}",
        f"-timeout={target.seconds}",
        f"-rss_limit_mb={target.mebibytes}",
        f"-artifact_prefix={faults / name}-",
        "-print_final_stats=1",
        "-max_len=65536",
    )

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        changed = mutate_json(data, seed) if seed % 4 else None
        return atheris.Mutate(data, longest) if changed is None or len(changed) > longest else changed

    def parse(data: bytes) -> None:
        target.try_input(data)

    atheris.Setup([sys.argv[0], *options, str(corpus)], parse, custom_mutator=mutate)
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process itself")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", choices=NAMES, metavar="TARGET", help="of " + ", ".join(NAMES))
    parser.add_argument("--minutes", type=float, default=10.0, help="time of one run (10)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".campaigns", help="where inputs are kept")
    parser.add_argument("--list", action="store_true", help="print the names and run nothing")
    options = parser.parse_args(argv)
    if options.list or options.target is None:
        print("\n".join(NAMES))
        return 0
    _fuzz(options.target, round(60 * options.minutes), options.folder)


if __name__ == "__main__":
    sys.exit(main())
