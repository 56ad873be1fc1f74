"""The page docs/figures.md, from the tables alone."""

from __future__ import annotations

import textwrap
from pathlib import Path

from research.figures import table
from research.figures.catalogue import FIGURES

_HEAD = """\
# The thesis' figures, computed again

Figures 5.1 to 5.8 and 6.1 to 6.2 of Triastcyn 2020 ("the thesis"), with the true values beside the printed ones:

```
python -m research.figures 5.4            # compute one and draw it
python -m research.figures all            # compute all, 5.6 to 6.2 need WARDROUND_DATA
python -m research.figures all --draw     # draw from the tables that are there
python -m research.figures 5.4 --out /tmp # drawing and table into a folder of your own
```

In a figure all curves are accounts of one mechanism with one noise. The text below it says which curves are certified,
and names settings that the thesis does not state. [As printed](definitions/as-printed.md) has the formulas that are no
bounds. APTOS and CIFAR-10 are not re-run, because their data are not here. The numbers are in
`research/benchmarks/results/figures/`, one CSV a figure.
"""


def page(tables: Path) -> str:
    """The whole text."""
    parts = [_HEAD]
    for figure in FIGURES.values():
        points = table.read(tables / f"{figure.stem}.csv")
        caption = textwrap.fill(figure.caption(points), 120, break_long_words=False, break_on_hyphens=False)
        parts.append(
            f"## Figure {figure.number}: {figure.title}\n\n"
            f"![Figure {figure.number}](figures/{figure.stem}.svg)\n\n{caption}\n"
        )
    return "\n".join(parts)
