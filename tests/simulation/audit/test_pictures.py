"""The sections about membership inference and reconstruction: their figures, the ceiling, and alarms in words."""

from __future__ import annotations

import re

from simulation.audit.membership import AttackedModels, AttackResult, MembershipReport, TruePositives
from simulation.audit.pictures import membership_section, picture


def _models(name: str, rate: float, *, passed: bool = False) -> AttackedModels:
    at = tuple(
        TruePositives(false_positives=share, rate=rate, low=rate / 2, high=2 * rate, ceiling=0.027, passed=passed)
        for share in (0.01, 0.001)
    )
    attack = AttackResult(attack="RMIA", auc=0.6, at=at, curve=((0.001, rate), (1.0, 1.0)))
    return AttackedModels(name=name, studies=8, metric=None, value=None, attacks=(attack,))


def _report(*, passed: bool) -> MembershipReport:
    models = (_models("without privacy", 0.135), _models("this study", 0.01, passed=passed))
    return MembershipReport(
        patients=700, epsilon=1.0001, delta=1e-5, models=models, ceiling=((0.01, 0.027), (1.0, 1.0))
    )


def test_it_shows_shares_found_intervals_and_the_ceiling() -> None:
    section = membership_section(_report(passed=False))
    assert section.rows[0][4] == "13.50% (6.75% to 27.00%)"
    # ε is rounded up.
    assert section.rows[-1][1:] == ("ε 1.01, δ 1e-05", "any", "", "2.70%", "2.70%")
    assert section.columns[4:] == ("found at 1 %", "found at 0.1 %")
    assert section.alarms == []
    assert section.chart.count("<polyline") == 4
    assert section.figures["patients"] == 700


def test_more_members_than_allowed_are_an_alarm() -> None:
    assert membership_section(_report(passed=True)).alarms == [
        "RMIA finds more members of this study than the certificate allows"
    ]


def test_points_stay_within_the_picture() -> None:
    (points,) = re.findall(r'points="([^"]+)"', picture({"a": ((0.001, 0.0), (1.0, 1.0))}))
    assert points == "60.0,330.0 380.0,10.0"
