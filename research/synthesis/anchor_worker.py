"""Make records by another library, in that library's own environment: it imports nothing of this project.

    ENVIRONMENT/bin/python anchor_worker.py WAY INPUT.npz OUTPUT.npy EPSILON SEED

INPUT.npz holds `codes` (records, columns) and `sizes` (columns,). WAY is one of `WAYS`. The mechanisms of `mbi` are
files of its repository and not of its package: their folder stands in the variable MBI_MECHANISMS.
"""

import itertools
import os
import sys

import numpy as np
import pandas as pd

DELTA, ROWS = 1e-5, 100_000


def by_mbi(way, codes, sizes, epsilon, random):
    """MST or AIM as their authors wrote them."""
    sys.path.insert(0, os.environ["MBI_MECHANISMS"])
    import mbi

    names = [f"c{place}" for place in range(len(sizes))]
    domain = mbi.Domain(names, sizes)
    data = mbi.Dataset({name: codes[:, place] for place, name in enumerate(names)}, domain)
    if way == "mbi-mst":
        import mst

        draw = mbi.MarkovRandomField.synthetic_data
        # It draws as many records as there are patients, which adds an error that the other ways do not have.
        mbi.MarkovRandomField.synthetic_data = lambda model, rows=ROWS, **rest: draw(model, rows=rows, **rest)
        made = mst.MST(data, epsilon, DELTA)
    else:
        import aim

        workload = [pair for pair in itertools.combinations(names, 2) if domain.size(pair) <= 10_000]
        made = aim.AIM(epsilon, DELTA, prng=random).run(data, workload, num_synth_rows=ROWS)[1]
    found = made.to_dict()
    return np.stack([np.asarray(found[name]) for name in names], axis=1)


def by_dpmm(way, codes, sizes, epsilon, random):
    """MST or AIM of `dpmm`, on columns that are coded already."""
    from dpmm.models.aim import AIMGM
    from dpmm.models.mst import MSTGM

    names = [f"c{place}" for place in range(len(sizes))]
    domain = dict(zip(names, map(int, sizes), strict=True))
    model = {"dpmm-mst": MSTGM, "dpmm-aim": AIMGM}[way](epsilon=epsilon, delta=DELTA, domain=domain)
    model.set_domain(domain)
    model.set_random_state(random)
    model.fit(pd.DataFrame(codes, columns=names))
    return model.generate(n_records=ROWS)[names].to_numpy()


def by_smartnoise(way, codes, sizes, epsilon, random):
    """MST or AIM of `smartnoise-synth`. Its transformer learns the categories from a table of every code."""
    from snsynth import Synthesizer
    from snsynth.transform import LabelTransformer
    from snsynth.transform.table import TableTransformer

    names = [f"c{place}" for place in range(len(sizes))]
    transformer = TableTransformer([LabelTransformer(nullable=False) for _ in names])
    every = pd.DataFrame(
        {name: np.arange(max(sizes)) % size for name, size in zip(names, sizes, strict=True)}, columns=names
    )
    transformer.fit(every)
    model = Synthesizer.create(way.removeprefix("smartnoise-"), epsilon=epsilon, delta=DELTA)
    model.fit(pd.DataFrame(codes, columns=names), transformer=transformer)
    return pd.DataFrame(model.sample(ROWS), columns=names).to_numpy().astype(np.int64)


WAYS = {
    "mbi-mst": by_mbi,
    "mbi-aim": by_mbi,
    "dpmm-mst": by_dpmm,
    "dpmm-aim": by_dpmm,
    "smartnoise-mst": by_smartnoise,
    "smartnoise-aim": by_smartnoise,
}


def main():
    way, source, target, epsilon, seed = sys.argv[1:]
    random = np.random.RandomState(int(seed))
    np.random.seed(int(seed))
    with np.load(source) as held:
        codes, sizes = held["codes"], held["sizes"].tolist()
    np.save(target, WAYS[way](way, codes, sizes, float(epsilon), random).astype(np.int64))


if __name__ == "__main__":
    main()
