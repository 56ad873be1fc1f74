"""All figures, in the thesis' order."""

from __future__ import annotations

from collections.abc import Mapping

from research.figures import holder, instances, joint, orders, synthetic, training, variational
from research.figures.figure import Figure

FIGURES: Mapping[str, Figure] = {
    figure.number: figure
    for figure in (
        synthetic.CLIPPED,
        synthetic.UNCLIPPED,
        synthetic.COMPOSED,
        orders.FIGURE,
        holder.FIGURE,
        training.GROWTH,
        training.DISTANCES,
        variational.FIGURE,
        instances.FIGURE,
        joint.FIGURE,
    )
}
