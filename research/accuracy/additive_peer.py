"""DP-EBM of interpret, in its own Python: `python additive_peer.py TABLE.npz KINDS EPSILON SEED` prints test scores."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np


def main() -> None:
    path, kinds, epsilon, seed = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    from interpret.privacy import DPExplainableBoostingClassifier  # type: ignore[import-not-found]

    warnings.simplefilter("ignore")
    with np.load(path) as table:
        cells, labels, train, test = (table[name] for name in ("cells", "labels", "train", "test"))
    bounds = {at: tuple(kind) for at, kind in enumerate(kinds) if kind is not None}
    model: Any = DPExplainableBoostingClassifier(
        feature_types=["nominal" if kind is None else "continuous" for kind in kinds],
        epsilon=epsilon,
        delta=1e-5,
        privacy_bounds=bounds,
        random_state=seed,
        n_jobs=1,
    )
    model.fit(cells[train], labels[train])
    sys.stdout.write(json.dumps(model.predict_proba(cells[test])[:, 1].tolist()))


if __name__ == "__main__":
    main()
