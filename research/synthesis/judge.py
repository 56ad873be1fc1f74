"""Total variation of two-way tables and a classifier's AUC: python -m research.synthesis.judge adult 1.0 0."""

import sys
from itertools import combinations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OneHotEncoder

from accounting.accountants.profile import mu_from_epsilon
from research.synthesis import data
from study_protocol.queries.answer import NoisedSum
from study_protocol.study.queries import PublishedAnswer, QueryNoise
from study_protocol.study.synthesis import Synthesis
from synthesis.model.answers import noised_from
from synthesis.model.make import make_records
from synthesis.rule import next_question


def settings(table, epsilon):
    columns = [
        {"column": name, "edges": list(range(len(labels) - 2))}
        if ordered
        else {"column": name, "categories": [f"c{cell}" for cell in range(len(labels) - 2)]}
        for name, labels, ordered in zip(table.names, table.labels, table.ordered, strict=True)
    ]
    outcome = table.names[table.outcome]
    return Synthesis.model_validate(
        {"columns": columns, "outcome": outcome, "allowance": mu_from_epsilon(epsilon, 1e-5) ** 2}
    )


def answered(document, codes, random):
    """The exact counts with Gaussian noise, as a masked sum gives them."""
    question = document.question
    grouped = [
        np.array(groups)[codes[:, place]] if groups else codes[:, place]
        for place, groups in enumerate(question.groups or ((),) * codes.shape[1])
    ]
    parts = [
        np.bincount(np.ravel_multi_index([grouped[c] for c in clique], shape), minlength=int(np.prod(shape))) * times
        for clique, shape, times in zip(question.cliques, question.shapes, question.times, strict=True)
    ]
    std = question.noise_multiplier * question.sensitivity
    total = np.concatenate(parts) + random.normal(0, std, question.cells)
    noise = QueryNoise(guaranteed=std, present=std, spacing=question.grid().spacing)
    return PublishedAnswer(
        study="s",
        query=question.stage,
        sha256=document.digest(),
        round=question.stage,
        hospitals=4,
        noise=noise,
        answer=question.answer(NoisedSum(total, std, 1)),
        warning="",
        ledger_entries=1,
        ledger_sha256="0" * 64,
    )


def ask_all(section, codes, seed):
    answers, random = [], np.random.default_rng(seed)
    while (document := next_question(section, answers)) is not None:
        answers.append(answered(document, codes, random))
    return answers


def mean_variation(sizes, left, right):
    found = []
    for i, j in combinations(range(len(sizes)), 2):
        shares = [
            np.bincount(x[:, i] * sizes[j] + x[:, j], minlength=sizes[i] * sizes[j]) / len(x) for x in (left, right)
        ]
        found.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(found))


def regression(table, records, test):
    others = [c for c in range(len(table.sizes)) if c != table.outcome]
    encoder = OneHotEncoder(categories=[np.arange(table.sizes[c]) for c in others]).fit(records[:1, others])
    model = LogisticRegression(max_iter=300).fit(encoder.transform(records[:, others]), records[:, table.outcome] == 1)
    truth, said = test[:, table.outcome] == 1, model.predict_proba(encoder.transform(test[:, others]))[:, 1]
    return float(((said > 0.5) == truth).mean()), float(roc_auc_score(truth, said))


def main(name, epsilon, seed):
    table, test = data.adult() if name == "adult" else data.split(getattr(data, name)(), seed)
    section = settings(table, epsilon)
    answers = ask_all(section, table.codes, seed)
    noised = noised_from(section, answers)
    records = make_records(noised, 100_000, seed)
    variation = mean_variation(table.sizes, table.codes, records)
    sampling = mean_variation(table.sizes, table.codes, test)
    print(name, epsilon, seed, len(answers), len(noised.edges), variation, sampling, *regression(table, records, test))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
