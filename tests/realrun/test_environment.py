"""A record says what it was measured on."""

from __future__ import annotations

import socket

from realrun.environment import fingerprint, num_cores, run_environment, tuning_variables


def test_a_fingerprint_names_host_cores_nics_versions_and_topology():
    found = fingerprint({"NCCL_ALGO": "Ring", "HOME": "/root", "GLOO_SOCKET_IFNAME": "lo"})
    assert found["host"] == socket.gethostname()
    assert found["cores"] == num_cores() >= 1
    assert {"python", "kernel", "torch"} <= set(found["versions"])
    assert {nic["name"] for nic in found["nics"]} == {name for _, name in socket.if_nameindex()}
    assert found["variables"] == {"GLOO_SOCKET_IFNAME": "lo", "NCCL_ALGO": "Ring"}
    assert "numa_cores" in found["topology"]


def test_only_variables_that_steer_communication_are_recorded():
    assert tuning_variables({"NCCL_DEBUG": "INFO", "SECRET": "x", "OMP_NUM_THREADS": "1"}) == {
        "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "1",
    }


def test_ranks_that_outnumber_the_cores_of_their_host_are_flagged():
    here = socket.gethostname()
    many = run_environment([here] * (num_cores() + 1) + ["other"], backend="gloo", device="cpu", launcher="srun")
    assert many["ranks_exceed_cores"]
    assert many["ranks_on_this_host"] == num_cores() + 1
    assert many["hosts"] == sorted({here, "other"})
    assert not run_environment([here, "other"], backend="gloo", device="cpu", launcher="srun")["ranks_exceed_cores"]
