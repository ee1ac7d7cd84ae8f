"""The compute profile is what a refit of the calibrate rows gives, and of nothing else."""

from __future__ import annotations

from simnet.compute import load_profile, parse_profile
from studies.compute import fit, points, run
from studies.facts import facts, find


def test_a_refit_gives_the_committed_profile():
    assert parse_profile(fit(facts())) == load_profile()


def test_without_validate_rows_the_refit_is_the_same():
    calibrate = [fact for fact in facts() if fact.kind == "calibrate"]
    assert fit(calibrate) == fit(facts())


def test_only_single_device_calibrate_rows_are_fitted_to_and_their_hashes_recorded():
    assert {(p.fact.kind, p.fact.device_count) for p in points(facts())} == {("calibrate", 1)}
    for found in load_profile().fits:
        for point in found.points:
            name, _, digest = point.partition("@")
            assert find(name).digest == digest


def test_devices_without_a_row_have_no_fit():
    assert not {"p40", "knl-7250", "tpu-v2", "tpu-v3", "p100-pcie"} & {f.device for f in load_profile().fits}


def test_the_study_holds_its_claims():
    assert all(claim.holds for claim in run().claims)
