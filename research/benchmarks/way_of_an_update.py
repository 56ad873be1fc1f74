"""The way of one update: which of our files run for it, in which order, on the hospital's and the coordinator's side.

    python -m research.benchmarks.way_of_an_update

A small study runs in this process, once in the clear and once under masks, and its second round is watched
(`research/benchmarks/watched_round.py`).

begins    every hospital's loop holds its assignment; asking for it is not part of the way
ends      coordinator: the step of its worker that releases the model; hospital: its loop asks for the next assignment
file      counted when a function of it is entered, by the thread of one hospital or by any of the coordinator's;
          files that only wait for news or watch (`ASIDE` in `watched_round`) are left out
room      a folder directly below the side's own package (`client_sdk`, `server`); the modules that lie in no such
          folder are one room, and every other package of ours is one
shared    what lies below all rooms (`SHARED`) is counted among the files and is no room: coming from it is no return
return    take the files in the order in which they are first entered, name each by its room, take equal neighbours
          as one: an entry into a room that was left before

A file that is entered again later counts once, so `returns` tells how often the reader who follows the update through
the code for the first time has to go back to a folder, not how often the program calls across.
The coordinator answers several hospitals at once: its files are the same in every run, their order need not be.

`research.quality.figures` records both ways in research/benchmarks/results/structure.json.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from research.benchmarks.watched_round import Way, run

# Ground that all rooms stand on: folders and files by their path's beginning. What is not there (yet) does no harm.
SHARED = (
    "study_protocol/",
    "client_sdk/errors.py",
    "accounting/plan/",
    "accounting/errors.py",
    "accounting/units.py",
    "accounting/encoding.py",
    "accounting/values.py",
)
# Private learning runs on the hospital's side; its rooms count like those of the hospital.
WITH = {"client_sdk": ("private_learning",)}


def room_of(path: str, side_package: str) -> str | None:
    """The room of a file on the side whose package is `side_package`; None for what is shared."""
    if path.startswith(SHARED):
        return None
    package, *rest = path.split("/")
    return (
        f"{package}/{rest[0]}" if package in (side_package, *WITH.get(side_package, ())) and len(rest) > 1 else package
    )


def rooms_on_the_way(files: Sequence[str], side_package: str) -> list[str]:
    """The rooms in the order of the files, equal neighbours as one."""
    rooms = [room for room in (room_of(path, side_package) for path in files) if room is not None]
    return [room for before, room in pairwise(["", *rooms]) if room != before]


def returns(rooms: Sequence[str]) -> int:
    """Entries into a room that was left before."""
    return len(rooms) - len(set(rooms))


def side(files: Sequence[str], side_package: str) -> dict[str, Any]:
    """The figures of one side."""
    rooms = rooms_on_the_way(files, side_package)
    back = Counter(rooms) - Counter(set(rooms))
    return {
        "files": len(files),
        "returns": returns(rooms),
        "returns_into": dict(sorted(back.items())),
        "rooms": rooms,
        "way": list(files),
    }


def figures(way: Way) -> dict[str, Any]:
    """Both sides; `files` are those of either, what runs on both counted once."""
    return {
        "files": len({*way.hospital, *way.coordinator}),
        "hospital": side(way.hospital, "client_sdk"),
        "coordinator": side(way.coordinator, "server"),
    }


def show(results: Mapping[str, Any]) -> Iterator[str]:
    """Lines for a reader: every file, with `<` where its room is entered again."""
    for name, package in (("hospital", "client_sdk"), ("coordinator", "server")):
        figures_ = results[name]
        yield f"{name}: {figures_['files']} files, {figures_['returns']} returns {figures_['returns_into']}"
        been: set[str] = set()
        before = ""
        for path in figures_["way"]:
            room = room_of(path, package)
            is_return = room is not None and room != before and room in been
            if room is not None:
                been.add(room)
                before = room
            yield f"  {'<' if is_return else ' '} {path}"


def main() -> None:
    for name, masked in (("clear", False), ("masked", True)):
        results = figures(run(masked=masked))
        print(f"-- {name}: {results['files']} files of ours", *show(results), sep="\n", flush=True)


if __name__ == "__main__":
    main()
