"""A file of patients with a label that two columns decide."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_records(path: Path, count: int, seed: int) -> Path:
    draw = np.random.default_rng(seed)
    age, rate = draw.uniform(0, 100, count), draw.uniform(0, 10, count)
    ill = (age / 100 + rate / 10 + draw.normal(0, 0.2, count) > 1).astype(int)
    wards = draw.choice(["north", "south", "west"], count)
    rows = zip(age, rate, ill, wards, strict=True)
    lines = [f"{a:.2f},{r:.2f},{i},{w},p{seed}-{n}" for n, (a, r, i, w) in enumerate(rows)]
    path.write_text("\n".join(["age,rate,ill,ward,patient", *lines]) + "\n")
    return path
