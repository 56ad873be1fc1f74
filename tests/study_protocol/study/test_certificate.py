"""The signed content: parts that a study does not have are left out, so that older certificates keep their bytes."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from study_protocol.study.certificate import Certificate, CertifiedMean
from tests.factories.certificates import ONE, signed


def test_what_a_study_lacks_is_left_out() -> None:
    value = ONE.certificate.model_dump(mode="json")
    assert "result" not in value
    assert "noise_schedule" not in value["mechanism"]
    assert all("adaptive" not in level for level in value["mechanism"]["levels"])
    moving = signed(adaptive_clip={"quantile": 0.5, "rate": 0.2}, noise_multiplier=0.5).certificate
    assert any(level.adaptive for level in moving.mechanism.levels)
    assert Certificate.model_validate(value) == ONE.certificate


def test_a_mean_is_of_several_models() -> None:
    alike = CertifiedMean(sha256="ab" * 32, bytes=1, rounds=[1, 2])
    assert "weights" not in alike.model_dump(mode="json")
    with pytest.raises(ValidationError, match="rounds"):
        CertifiedMean(sha256="ab" * 32, bytes=1, rounds=[1])
    for rounds, weights in (([1, 1], []), ([2, 1], []), ([0, 1], []), ([1, 2], [0.5]), ([1, 2], [0.2, 0.3, 0.5])):
        with pytest.raises(ValidationError, match="each of its rounds once"):
            CertifiedMean(sha256="ab" * 32, bytes=1, rounds=rounds, weights=weights)
