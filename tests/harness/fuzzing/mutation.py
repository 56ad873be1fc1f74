"""Changes to JSON inside an input: parsers written in C show no coverage, so that single bytes would lead nowhere."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53, 2**63, -(2**63), 10**400, 0.0, -0.0, 0.5, 1e308, 5e-324, -1e-3),
    *("", " ", "a", "A" * 43, "a" * 64, "0" * 64, "x" * 5000, "\u0000", "\u202e", "é", "e\u0301", "../x", "1e5"),
    *([], {}, [[]], {"a": 1}, [0] * 1000),
)


def mutate_json(data: bytes, seed: int) -> bytes | None:
    """Change one place of one JSON text in the input. Return None if it holds none.

    A text begins with a brace in a line, and what stands before it in the line is kept.
    """
    random = Random(seed)
    lines = data.split(b"\n")
    places = [number for number, line in enumerate(lines) if b"{" in line]
    if not places:
        return None
    # Most inputs are one text in several lines, or one in each line.
    place = random.choice(places)
    for first, last in ((place, place + 1), (places[0], len(lines))):
        line = b"\n".join(lines[first:last])
        start = line.index(b"{")
        try:
            value = json.loads(line[start:])
        except (ValueError, RecursionError):
            continue
        for _ in range(random.randint(1, 3)):
            value = _mutate(value, random)
        body = json.dumps(value, separators=(",", ":"), ensure_ascii=random.random() < 0.5)
        lines[first:last] = [line[:start] + body.encode("utf-8", "surrogatepass")]
        return b"\n".join(lines)
    return None


def _containers(value: Any) -> list[Any]:
    places: list[Any] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict | list) and item:
            places.append(item)
            waiting += item.values() if isinstance(item, dict) else item
    return places


def _mutate(value: Any, random: Random) -> Any:
    containers = _containers(value)
    if not containers or random.random() < 0.02:
        return deepcopy(random.choice(_VALUES))
    container = random.choice(containers)
    key: Any = random.choice(list(container)) if isinstance(container, dict) else random.randrange(len(container))
    action = random.randrange(6)
    if action == 0:
        del container[key]
    elif action == 1:
        second_container = random.choice(containers)
        second_value = random.choice(
            list(second_container.values()) if isinstance(second_container, dict) else second_container
        )
        container[key] = deepcopy(second_value)
    elif action == 2 and isinstance(container, dict):
        container[random.choice(("", "a", "None", f"{key}2"))] = deepcopy(container[key])
    elif action == 2 and isinstance(container, list):
        container.insert(key, deepcopy(container[key]))
    elif action == 3 and isinstance(container[key], int | float) and not isinstance(container[key], bool):
        factor = random.choice((-1, 2, 1) if isinstance(container[key], int) else (-1.0, 2.0, 0.5, 1.0000001))
        container[key] = container[key] * factor + random.choice((0, 1, -1))
    elif action == 3 and isinstance(container[key], str) and container[key]:
        text, at = container[key], random.randrange(len(container[key]))
        container[key] = text[:at] + chr(random.choice((0, 32, 48, 97, 65, 0x301, 0x1F600))) + text[at + 1 :]
    else:
        container[key] = deepcopy(random.choice(_VALUES))
    return value
