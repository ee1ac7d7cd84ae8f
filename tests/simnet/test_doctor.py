from __future__ import annotations

import pytest

from simnet import doctor


def test_doctor_finds_what_is_there_and_names_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "OPTIONAL", {"a_package_nobody_has": "flying"})
    monkeypatch.setenv("SIMNET_CATALOG", "/no/such/folder")
    found = {finding.subject: finding for finding in doctor.examine()}
    assert found["numpy"].ok
    assert not found["a_package_nobody_has"].ok
    assert found["a_package_nobody_has"].needed_for == "flying"
    assert not found["SIMNET_CATALOG"].ok
