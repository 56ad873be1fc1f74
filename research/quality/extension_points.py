"""Write the page of all extension points: python -m research.quality.extension_points [--check].

Each kind of extension registers in one table. This script lists the entries of those tables that no other page lists,
with the first sentence of their description, in docs/extending.md.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from private_learning.records.formats import RecordFormat

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
HEAD = """# Extension points

`python -m research.quality.extension_points` writes this list of entries that extensions register.
[Architecture](architecture.md#adding-to-the-tables) says which files a new entry touches. Two more tables are
`SCHEMES` in `accounting/plan/schemes.py` ([schemes](glossary.md#schemes)), and `ROLES` in `wardround/cli/commands.py`
(`wardround --help`).
"""


class Undescribed(Exception):
    """An entry of a table has no description."""


@dataclass(frozen=True)
class ExtensionEntry:
    """One row: the name under which users know the entry, the module that defines it, and its first sentence."""

    name: str
    module: str
    description: str


@dataclass(frozen=True)
class ExtensionTable:
    """One kind of extension.

    Attributes:
        kind: heading of the section.
        place: file and name of the table.
        entries: rows in the order of the table.
    """

    kind: str
    place: str
    entries: Sequence[ExtensionEntry]


def first_sentence(name: str, text: str | None) -> str:
    """Return the first sentence of a docstring in one line.

    Raises:
        Undescribed: there is no text.
    """
    paragraph = " ".join((inspect.cleandoc(text or "")).split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.])\s+(?=[A-Z`∂])", paragraph)[0]
    if not sentence:
        raise Undescribed(f"{name} has no description: write one where it is defined")
    return sentence.replace("|", "\\|")


def described(name: str, definition: Any) -> ExtensionEntry:
    """Return the entry of a class or a module, whose own docstring describes it.

    Raises:
        Undescribed: it has no docstring of its own.
    """
    module = definition.__name__ if inspect.ismodule(definition) else definition.__module__
    return ExtensionEntry(name, module, first_sentence(name, definition.__dict__.get("__doc__")))


def tables() -> Iterator[ExtensionTable]:
    """Yield every table of extensions, in the order of the page.

    Raises:
        Undescribed: an entry has no description.
    """
    from accounting.estimation.upper_mean import ESTIMATORS
    from private_learning.gradients.inspection import RULES
    from private_learning.records.formats import FORMATS
    from private_learning.tasks.registry import BUILT_IN
    from server import app
    from study_protocol.queries.kinds import Question

    yield ExtensionTable(
        "Tasks",
        "`BUILT_IN` in `private_learning/tasks/registry.py`; other packages: entry points `wardround.tasks`",
        [described(name, task) for name, task in BUILT_IN.items()],
    )
    layers = dict[Any, list[str]]()
    for layer, rule in RULES.items():
        layers.setdefault(rule, []).append(layer.__name__)
    yield ExtensionTable(
        "Layer rules",
        "`RULES` in `private_learning/gradients/inspection.py`",
        [described(", ".join(names), rule) for rule, names in layers.items()],
    )
    yield ExtensionTable(
        "Record formats",
        "`FORMATS` in `private_learning/records/formats.py`, to which a program may add its own",
        [_of_records(name, entry) for name, entry in FORMATS.items()],
    )
    kinds = {get_args(kind.model_fields["kind"].annotation)[0]: kind for kind in get_args(get_args(Question)[0])}
    yield ExtensionTable(
        "Kinds of question",
        "`Question` in `study_protocol/queries/kinds/__init__.py`",
        [described(name, kind) for name, kind in kinds.items()],
    )
    yield ExtensionTable(
        "Estimators of a population's mean",
        "`ESTIMATORS` in `accounting/estimation/upper_mean.py`",
        [
            ExtensionEntry(name, "accounting.estimation.upper_mean", first_sentence(name, text))
            for name, text in ESTIMATORS.items()
        ],
    )
    yield ExtensionTable(
        "Nouns of the API",
        "`ROUTERS` in `server/app.py`",
        [described(noun.__name__.rpartition(".")[2], noun) for noun in app.NOUNS],
    )


def _of_records(name: str, entry: RecordFormat) -> ExtensionEntry:
    """Return the row of a record format, with the endings of its files and the extra that it needs."""
    endings = f"`{' '.join(entry.endings)}`. " if entry.endings else ""
    extra = f" Needs the extra `{entry.extra}`." if entry.extra else ""
    return ExtensionEntry(name, entry.read.__module__, endings + first_sentence(name, entry.read.__doc__) + extra)


def page() -> str:
    """Return the text of docs/extending.md."""
    parts = [HEAD]
    for table in tables():
        rows = [f"| `{entry.name}` | `{entry.module}` | {entry.description} |" for entry in table.entries]
        parts.append(
            "\n".join(
                [
                    f"## {table.kind}",
                    "",
                    table.place + ".",
                    "",
                    "| name | module | description |",
                    "|---|---|---|",
                    *rows,
                    "",
                ]
            )
        )
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the page instead of writing it")
    options = parser.parse_args()
    text = page()
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.name} is not what the tables say: run python -m research.quality.extension_points")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
