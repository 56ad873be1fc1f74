"""A second reader of a study's ledger: every ε that its statement names, computed again without the project's code.

    python -m tests.vectors.second_reader LEDGER.jsonl [STATEMENT.json]

LEDGER is what `wardround ledger export` writes, STATEMENT what `GET …/budget` answers. The chain, the settings' digest
and the signature of the head are checked, the rounds replayed, and every ε of the statement compared. Of the project it
knows pages alone: docs/definitions, docs/guarantees.md, and for each scheme who is protected (`SCHEMES`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.vectors.second_epsilon import mpf
from tests.vectors.second_formats import digest, entry_hash, is_document_signed, roster_fingerprint
from tests.vectors.second_limits import Classical, Questions, limit_of
from tests.vectors.second_plans import CountedLimit, counted_of
from tests.vectors.second_study import Json, Study, Wrong, require

# How far above the exact value a statement may be: log-moments are rounded up by less than 1e-6 of themselves.
ABOVE, BELOW = mpf("2e-6"), mpf("1e-9")
POPULATIONS = {0.9: 10, 0.99: 100, 0.999: 1000}


def read_ledger(lines: Iterable[str]) -> tuple[Study, list[Json], Json]:
    """The study, its entries and the signed head. Raises Wrong."""
    *entries, signed = [json.loads(line) for line in lines]
    previous, study = "0" * 64, None
    for place, entry in enumerate(entries, start=1):
        where = f"entry {place}"
        require(entry["sequence"] == place, f"{where}: entries are missing, repeated or reordered")
        require(entry["previous"] == previous, f"{where}: does not hang on the one before")
        require(entry["sha256"] == entry_hash(entry), f"{where}: its content does not have its hash")
        previous, body = entry["sha256"], entry["body"]
        if study is None:
            require(entry["kind"] == "opened", "the first entry opens no study")
            require(digest(body["settings"]) == body["settings_sha256"], "the settings do not have their digest")
            study, settings_sha256 = Study(body["plan"]), body["settings_sha256"]
            continue
        require(body["settings_sha256"] == settings_sha256, f"{where}: other settings")
        try:
            study.apply(entry["kind"], entry["round"], body)
        except Wrong as error:
            raise Wrong(f"{where}: {error}") from error
    head = signed["head"]["head"]
    require(study is not None and head["entries"] == len(entries) and head["sha256"] == previous, "another head")
    key, signature = signed["coordinator_key"], signed["head"]["signature"]
    require(is_document_signed(key, "wardround/1/ledger-head", head, signature), "the head is not signed by that key")
    active = [(one["client"], one["public_key"]) for one in signed["roster"]["members"] if one["state"] == "active"]
    roster = roster_fingerprint(head["study"], active)
    require(roster == signed["roster"]["fingerprint"] == entries[-1]["body"]["roster_sha256"], "another roster")
    return study, entries, signed


# -- the statement


def compare(study: Study, entries: Sequence[Json], signed: Json, statement: Json) -> list[str]:
    """Every number of the statement that the ledger does not give, in words; empty: it is the ledger's statement."""
    wrong: list[str] = []
    head = signed["head"]["head"]
    wanted = {"entries": head["entries"], "head": f"sha256:{head['sha256']}", "signature": signed["head"]["signature"]}
    if statement["study"] != head["study"] or statement["ledger"] != wanted or statement["round"] != study.last:
        wrong.append("the statement is of another ledger")
    trains = study.plan["scheme"] != "statistics"
    # The digest leaves out the loss distributions, which take long to compute.
    short = [
        {**one, "reports": []} if trains and one["definition"] == "classical" else one for one in statement["limits"]
    ]
    said = {"limits": short, "percentiles": statement["percentiles"]}
    if digest(said) != entries[-1]["body"]["statement_sha256"]:
        wrong.append("the statement does not have the digest in the newest entry")
    return wrong + compare_numbers(study, statement["limits"], statement["percentiles"])


def compare_numbers(study: Study, stated: Sequence[Json], percentiles: Sequence[Json]) -> list[str]:
    """The part of `compare` that is about ε and δ."""
    limits = [one for one in stated if one["state"] != "unbounded"]
    if [(x["level"], x["definition"]) for x in limits] != [(x["level"], x["definition"]) for x in study.plan["limits"]]:
        return ["the statement has other limits than the plan"]
    wrong: list[str] = []
    for limit, one in zip(study.plan["limits"], limits, strict=True):
        wrong += [f"{limit['level']} {limit['definition']}: {reason}" for reason in _limit(study, limit, one)]
    return [*wrong, *_percentiles(study, percentiles)]


def capped(study: Study, limit: Json, *, told: bool = False, certified: bool = False) -> mpf:
    """ε so far; what holds for everybody holds on average, so that a Bayesian one is never above the classical one."""
    account = limit_of(study, limit, told=told)
    epsilon = account.certified() if certified else account.epsilon()
    if limit["definition"] == "classical":
        return epsilon
    if certified and limit["level"] == "client" and study.plan["bayesian"]["adversary"] == "adaptive":
        # What holds on every path is the limit.
        epsilon = max(epsilon, mpf(limit["epsilon"]))
    beside = [
        Classical(study, other, told=told).epsilon()
        for other in study.plan["limits"]
        if other["definition"] == "classical" and other["level"] == limit["level"] and other["delta"] <= limit["delta"]
    ]
    return min([epsilon, *beside[:1]])


def _counted(study: Study, account: CountedLimit, stated: Json) -> Iterable[str]:
    """A limit that is kept by counting: one ε from the first charge on."""
    limit, certificate, progress = account.limit, stated["certificate"], stated["progress"]
    after = account if study.pending is None else type(account)(study.ahead(), limit)
    spent, reserved = account.spent(), after.spent()
    yield from _between("spent", stated["spent"], spent.low * (1 - BELOW), spent.high * (1 + BELOW))
    yield from _off("the certificate's epsilon", certificate["epsilon"], mpf(stated["spent"]))
    yield from _off("the certificate's delta", certificate["delta"], mpf(limit["delta"]))
    # Once charged, nothing is added.
    added = mpf(0) if account.begun else reserved.high
    least = mpf(0) if account.begun else reserved.low * (1 - BELOW)
    yield from _between("reserved", stated["reserved"], least, added * (1 + BELOW))
    left = limit["epsilon"] - mpf(stated["spent"]) - mpf(stated["reserved"])
    slack = BELOW * mpf(limit["epsilon"])
    yield from _between("remaining", stated["remaining"], left - slack, max(mpf(0), left) + slack)
    if progress["enforcement"] != account.enforcement:
        yield f"it is kept by {account.enforcement}"
    per_round, trains = account.step.per_round, study.pending is not None and study.pending[1] is None
    steps = {
        "used": len(study.rounds) * per_round,
        "reserved": trains * per_round,
        "allowed": account.rounds * per_round,
    }
    # Places of a noise schedule that abandoned rounds used.
    if study.plan.get("noise_schedule") and (lost := study.begun - len(study.rounds) - trains):
        steps["abandoned"] = lost * per_round
    if progress["steps"] != (steps if account.enforcement == "fixed-plan" else None):
        yield f"its steps are not {steps}"
    allowed, squares = account.allowed(), progress["squares"]
    if (squares is None) != (allowed.high == 0):
        yield "its squares are stated where none are allowed, or not where some are"
    elif squares is not None:
        yield from _between("allowed", squares["allowed"], allowed.low, allowed.high)
        yield from _off("used", squares["used"], account.used())
        yield from _between("reserved squares", squares["reserved"], *_added(account, after))
        for name in ("used", "allowed"):
            yield from _off(f"the certificate's {name}", certificate[name], mpf(squares[name]))
    if [report["name"] for report in stated["reports"]] != ["privacy-loss distribution"]:
        yield "its report is not the privacy-loss distribution"
        return
    (report,), running = stated["reports"], account.running()
    yield from _off("delta of the report", report["certificate"]["delta"], mpf(limit["delta"]))
    for epsilon in (report["epsilon"], report["certificate"]["epsilon"]):
        yield from _between("running", epsilon, running.low * (1 - BELOW), running.high * (1 + ABOVE))


def _added(account: CountedLimit, after: CountedLimit) -> tuple[mpf, mpf]:
    added = after.used() - account.used()
    return added * (1 - BELOW) - BELOW * account.used(), (added + BELOW * after.used()) * (1 + BELOW)


def _limit(study: Study, limit: Json, stated: Json) -> Iterable[str]:
    if (counted := counted_of(study, limit)) is not None:
        yield from _off("epsilon", stated["epsilon"], mpf(limit["epsilon"]))
        yield from _off("delta", stated["delta"], mpf(limit["delta"]))
        yield from _counted(study, counted, stated)
        return
    account = limit_of(study, limit, told=study.finished)
    spent, certificate = capped(study, limit), stated["certificate"]
    after = spent if study.pending is None else capped(study.ahead(), limit)
    size = max(after, mpf(limit["epsilon"]))
    yield from _off("epsilon", stated["epsilon"], mpf(limit["epsilon"]))
    yield from _off("delta", stated["delta"], mpf(limit["delta"]))
    yield from _off("spent", stated["spent"], spent)
    # Differences are as far off as what they are differences of.
    yield from _between("reserved", stated["reserved"], after - spent - ABOVE * spent, after - spent + ABOVE * after)
    left = max(mpf(0), limit["epsilon"] - after)
    yield from _between("remaining", stated["remaining"], left - ABOVE * size, left + BELOW * size)
    sure = capped(study, limit, told=study.finished, certified=True)
    yield from _off("the certificate's epsilon", certificate["epsilon"], sure)
    yield from _off("the certificate's delta", certificate["delta"], mpf(limit["delta"]))
    if isinstance(account, Questions):
        yield from _off("used", certificate["used"], account.used)
        yield from _off("allowed", certificate["allowed"], account.allowed())
    reports = account.reports()
    if sorted(reports) != sorted(report["name"] for report in stated["reports"]):
        yield f"its reports are not {sorted(reports)}"
        return
    for report in stated["reports"]:
        low, high = reports[report["name"]]
        yield from _off(f"delta of {report['name']}", report["certificate"]["delta"], mpf(limit["delta"]))
        for epsilon in (report["epsilon"], report["certificate"]["epsilon"]):
            yield from _between(report["name"], epsilon, low * (1 - BELOW), high * (1 + ABOVE))


def _percentiles(study: Study, stated: Sequence[Json]) -> Iterable[str]:
    bayesian = [limit for limit in study.plan["limits"] if limit["definition"] == "bayesian"]
    wanted = [(limit, share) for limit in bayesian for share in POPULATIONS]
    if [one["population"] for one in stated] != [share for _, share in wanted]:
        yield "the shares of the population are others"
        return
    for (limit, share), one in zip(wanted, stated, strict=True):
        yield from _off(f"epsilon of {share}", one["epsilon"], capped(study, limit))
        yield from _off(f"delta of {share}", one["delta"], min(mpf(1), mpf(limit["delta"]) * POPULATIONS[share]))


def _off(name: str, stated: float | None, exact: mpf) -> Iterable[str]:
    return _between(name, stated, exact * (1 - BELOW), exact * (1 + ABOVE))


def _between(name: str, stated: float | None, low: mpf, high: mpf) -> Iterable[str]:
    if stated is None or not low <= stated <= high:
        yield f"{name} is {stated}, and should be between {float(low)!r} and {float(high)!r}"


def check(ledger: str, statement: str | None = None) -> list[str]:
    """What is wrong with the texts of a ledger and its statement; empty: nothing."""
    try:
        study, entries, signed = read_ledger(ledger.splitlines())
        return [] if statement is None else compare(study, entries, signed, json.loads(statement))
    except Wrong as error:
        return [str(error)]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        return [f"no ledger, or no statement: {error!r}"]


def main(arguments: Sequence[str]) -> int:
    """0: every number agrees."""
    wrong = check(*(Path(name).read_text() for name in arguments))
    print("\n".join(wrong) or "every number follows from the ledger")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
