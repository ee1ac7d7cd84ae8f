"""Plans are checked everywhere; a real lab is built only where the `lab` tests run (root, iproute2)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from realrun.lab import network, ranks
from realrun.lab import plan as plans
from simnet.errors import Incomplete, InvalidInput, Unsupported
from simnet.units import GBIT_PER_S
from studies import closed_loop

MBIT = GBIT_PER_S / 1e3


def test_a_star_has_one_switch_and_one_cable_a_host() -> None:
    made = plans.plan("star", 4, 100 * MBIT)
    assert [(c.a, c.b) for c in made.cables] == [("h0", "sw0"), ("h1", "sw0"), ("h2", "sw0"), ("h3", "sw0")]
    assert made.route("h1", "h3") == ["h1", "sw0", "h3"]


def test_two_tier_puts_half_of_the_hosts_behind_each_slow_uplink() -> None:
    made = plans.plan("two-tier", 4, 100 * MBIT, uplink=50 * MBIT)
    assert made.route("h0", "h1") == ["h0", "sw1", "h1"]
    assert made.route("h1", "h2") == ["h1", "sw1", "sw0", "sw2", "h2"]
    assert {c.rate for c in made.cables if c.b == "sw0"} == {50 * MBIT}


@pytest.mark.parametrize(("hosts", "cables"), [(2, 1), (3, 3), (5, 5)])
def test_a_ring_has_one_cable_per_pair_of_neighbours(hosts: int, cables: int) -> None:
    assert len(plans.plan("ring", hosts, 10 * MBIT).cables) == cables


@pytest.mark.parametrize(("grid", "cables"), [((2, 2), 4), ((2, 3), 9), ((3, 3), 18)])
def test_a_torus_has_one_cable_per_pair_of_neighbours(grid: tuple[int, int], cables: int) -> None:
    assert len(plans.plan("torus2d", grid[0] * grid[1], 10 * MBIT, grid=grid).cables) == cables


def test_a_torus_routes_along_the_row_first_and_the_short_way_round() -> None:
    made = plans.plan("torus2d", 15, 10 * MBIT, grid=(3, 5))
    assert made.route("h0", "h14") == ["h0", "h4", "h14"]
    assert made.route("h0", "h7") == ["h0", "h1", "h2", "h7"]


def test_routes_hop_by_hop_agree_with_the_whole_route() -> None:
    for made in (plans.plan("ring", 5, 10 * MBIT), plans.plan("torus2d", 12, 10 * MBIT)):
        for src in made.hosts:
            for dst in set(made.hosts) - {src}:
                way = made.route(src, dst)
                assert made.route(way[1], dst) == way[1:] if way[1] != dst else len(way) == 2


def test_a_plan_survives_json() -> None:
    made = plans.plan("torus2d", 4, 10 * MBIT)
    assert plans.Plan.of_record(json.loads(json.dumps(made.record()))) == made


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mesh", 4, 1e6), "choose one of star"),
        (("star", 1, 1e6), "2 to 64 hosts, got 1"),
        (("two-tier", 5, 1e6), "even number"),
        (("star", 4, 10.0), "1 Mbit/s or more"),
        (("torus2d", 3, 1e6), "2 or more by 2 or more, got 1x3"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(arguments: tuple[str, int, float], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        plans.plan(*arguments)


def test_options_of_other_topologies_are_refused() -> None:
    with pytest.raises(InvalidInput, match="only two-tier has uplinks"):
        plans.plan("star", 4, 1e7, uplink=1e6)
    with pytest.raises(InvalidInput, match="grid of 2x3 holds 6 hosts, got 4"):
        plans.plan("torus2d", 4, 1e7, grid=(2, 3))


@pytest.mark.parametrize("name", ["", "Lab", "a-b", "../x", "x" * 13])
def test_a_name_that_could_touch_other_namespaces_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="name is 1 to 12"):
        plans.plan("star", 2, 1e7, name=name)


def test_ranks_are_told_what_torchrun_would_tell_them() -> None:
    told = ranks.environment(plans.plan("torus2d", 4, 10 * MBIT), 2)
    assert (told["RANK"], told["WORLD_SIZE"], told["LOCAL_RANK"]) == ("2", "4", "0")
    assert (told["MASTER_ADDR"], told["GLOO_SOCKET_IFNAME"]) == ("10.77.0.1", "lab0")


def test_without_root_a_lab_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InvalidInput, match="needs root"):
        network.up(plans.plan("star", 2, 10 * MBIT))


def test_rates_no_machine_can_push_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "require_tools", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with pytest.raises(InvalidInput, match=r"3\.2 Gbit/s, more than the 1\.2 Gbit/s that 2 cores push"):
        network.up(plans.plan("star", 8, 200 * MBIT))


needs_lab = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root"),
]


@pytest.fixture(scope="session")
def lab_name() -> str:
    """Name of a lab that this machine can have, whatever keeps it from that: no tools, a container, few cores."""
    try:
        network.require_lab(plans.plan("star", 4, 100 * MBIT))
    except (InvalidInput, Unsupported) as error:
        pytest.skip(f"no lab here: {error}")
    return f"t{os.getpid() % 10**8}"


class TestRealLab:
    pytestmark = needs_lab

    @pytest.mark.parametrize("topology", plans.TOPOLOGIES)
    def test_every_host_reaches_every_other_and_nothing_remains(self, topology: str, lab_name: str) -> None:
        before = _links()
        made = plans.plan(topology, 4, 50 * MBIT, name=lab_name)
        network.up(made)
        try:
            ranks.run(lab_name, [sys.executable, "-c", _REACH, *_addresses(made)], timeout=240)
        finally:
            assert network.down(lab_name) == len(made.vertices)
        assert network.namespaces(lab_name) == []
        assert _links() == before

    def test_down_ends_what_still_runs_after_a_crash(self, lab_name: str) -> None:
        network.up(plans.plan("star", 2, 50 * MBIT, name=lab_name))
        left = ranks.start(network.current(lab_name), ["sleep", "300"])
        assert network.down(lab_name) == 3
        assert all(process.wait(60) != 0 for process in left.running)

    def test_a_command_that_ends_takes_what_it_started_with_it(self, lab_name: str) -> None:
        made = plans.plan("star", 2, 50 * MBIT, name=lab_name)
        network.up(made)
        try:
            ranks.run(lab_name, ["sh", "-c", "sleep 300 & exit 0"], timeout=240)
            with pytest.raises(Incomplete, match=r"ranks 0, 1 of the lab 't\d+' had not ended after 0\.5 s"):
                ranks.run(lab_name, ["sh", "-c", "sleep 300 & sleep 300"], timeout=0.5)
            assert all(network.processes(made.namespace(host)) == [] for host in made.hosts)
            assert lab_name in network.names()
        finally:
            network.down(lab_name)
        assert lab_name not in network.names()

    @pytest.mark.usefixtures("lab_name")
    def test_down_of_no_lab_removes_nothing(self) -> None:
        assert network.down("nosuchlab") == 0

    def test_a_failing_rank_is_named_and_the_others_are_ended(self, lab_name: str) -> None:
        network.up(plans.plan("star", 3, 50 * MBIT, name=lab_name))
        try:
            body = "import os,sys,time; sys.exit(7) if os.environ['RANK'] == '1' else time.sleep(300)"
            with pytest.raises(Incomplete, match=r"rank 1 on h1 \(exit code 7\)"):
                ranks.run(lab_name, [sys.executable, "-c", body], timeout=240)
            assert all(network.processes(space) == [] for space in network.namespaces(lab_name))
        finally:
            network.down(lab_name)

    def test_cubic_is_used_where_allowed_and_else_refused_with_nothing_left(self, lab_name: str) -> None:
        made = plans.plan("star", 2, 50 * MBIT, name=lab_name)
        allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
        try:
            if "cubic" in allowed:
                network.up(made, congestion="cubic")
            else:
                with pytest.raises(Unsupported, match="does not let a namespace use cubic"):
                    network.up(made, congestion="cubic")
                assert network.namespaces(lab_name) == []
        finally:
            network.down(lab_name)

    def test_ending_the_command_ends_its_ranks(self, lab_name: str) -> None:
        made = plans.plan("star", 2, 50 * MBIT, name=lab_name)
        network.up(made)
        try:
            body = f"from realrun.lab.ranks import run; run({lab_name!r}, ['sleep', '300'])"
            command = subprocess.Popen([sys.executable, "-c", body])
            _wait_for(lambda: all(network.processes(made.namespace(host)) for host in made.hosts))
            command.terminate()
            assert command.wait(60) == 143
            assert all(network.processes(made.namespace(host)) == [] for host in made.hosts)
        finally:
            network.down(lab_name)

    def test_a_second_lab_of_the_same_name_is_refused(self, lab_name: str) -> None:
        made = plans.plan("star", 2, 50 * MBIT, name=lab_name)
        network.up(made)
        try:
            with pytest.raises(InvalidInput, match="exists; remove it"):
                network.up(made)
        finally:
            network.down(lab_name)

    @pytest.mark.usefixtures("lab_name")
    def test_predictions_from_ping_pong_agree_with_collectives_in_the_lab(self) -> None:
        result = closed_loop.run(quick=True)
        assert len(result.rows) == 6
        failed = [f"{claim.text}: {claim.detail}" for claim in result.claims if not claim.holds]
        assert not failed
        assert result.tables[1].rows[0]["factor"] == pytest.approx(1.0, abs=0.03)


_REACH = """
import os, socket, sys, threading
rank, peers = int(os.environ["RANK"]), sys.argv[1:]
server = socket.create_server((peers[rank], 5555))
def connect(peer):
    while True:
        try:
            return socket.create_connection((peer, 5555), timeout=30)
        except ConnectionRefusedError:
            pass
links = [connect(peer) for peer in peers]
came = [server.accept()[1][0] for _ in peers]
assert sorted(came) == sorted(peers), came
"""


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _addresses(made: plans.Plan) -> list[str]:
    return [made.address(host) for host in made.hosts]


def _links() -> str:
    return subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
