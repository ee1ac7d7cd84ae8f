import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnet.errors import InvalidInput
from simnet.pipeline import (
    InputPipeline,
    Stage,
    feed_rows,
    input_time,
    read_stage,
    several_hosts,
    simulate_feed,
    steady_feed,
    supply,
    workers_to_keep_up,
)
from simnet.stragglers import Jitter


def pipeline(read=1e-3, decode=4e-3, workers=4, **options):
    stages = (Stage("read", read, on_cpu=False), Stage("decode", decode, workers))
    return InputPipeline(stages, **{"cores": 8, **options})


def test_a_slow_device_hides_the_pipeline():
    feed = steady_feed(pipeline(), 10, 0.05)
    assert (feed.step_s, feed.stall_s, feed.slowest) == (0.05, 0, "device")


def test_the_slowest_stage_sets_the_step_and_is_named():
    feed = steady_feed(pipeline(read=5e-3), 10, 0.02)
    assert feed.slowest == "read"
    assert feed.step_s == pytest.approx(0.05)
    assert feed.stall_s == pytest.approx(0.03)
    assert feed.samples_per_s == pytest.approx(200)


def test_too_few_cores_are_named_even_with_enough_workers():
    feed = steady_feed(pipeline(decode=4e-3, workers=16, cores=2), 10, 0.005)
    assert feed.slowest == "cores"
    assert feed.samples_per_s == pytest.approx(500)


def test_more_devices_on_a_host_wait_longer():
    steps = [steady_feed(pipeline(num_devices=n), 10, 0.02).step_s for n in (1, 2, 4, 8)]
    assert steps == pytest.approx([0.02, 0.02, 0.04, 0.08])


def test_a_copy_that_does_not_overlap_is_added():
    overlapped = steady_feed(pipeline(copy_time=1e-3), 10, 0.05)
    inline = steady_feed(pipeline(copy_time=1e-3, overlap_copy=False), 10, 0.05)
    assert (overlapped.step_s, inline.step_s) == (0.05, pytest.approx(0.06))
    assert inline.slowest == "copy"


@settings(max_examples=25)
@given(
    st.floats(0.2e-3, 4e-3), st.floats(0.5e-3, 8e-3), st.integers(1, 6), st.integers(1, 8), st.integers(1, 3),
    st.floats(1e-3, 60e-3), st.floats(0, 2e-3), st.booleans(),
)  # fmt: skip
def test_events_and_closed_form_agree_in_the_steady_state(read, decode, workers, cores, devices, step, copy, overlap):
    described = pipeline(
        read, decode, workers, cores=cores, num_devices=devices, copy_time=copy, overlap_copy=overlap, queue=16
    )
    closed, events = steady_feed(described, 8, step), simulate_feed(described, 8, step, steps=40)
    assert events.step_s == pytest.approx(closed.step_s, rel=0.02)
    assert events.step_s >= closed.step_s * (1 - 0.02)
    assert events.stall_s == pytest.approx(closed.stall_s, abs=0.02 * closed.step_s)


def test_several_stages_on_few_cores_agree_too():
    stages = (Stage("parse", 1e-3, 4), Stage("decode", 3e-3, 4), Stage("augment", 2e-3, 4))
    described = InputPipeline(stages, cores=3, queue=64)
    closed, events = steady_feed(described, 16, 1e-3), simulate_feed(described, 16, 1e-3, steps=60)
    assert closed.slowest == events.slowest == "cores"
    assert events.step_s == pytest.approx(closed.step_s, rel=0.03)


def test_a_coarse_grain_keeps_the_steady_state():
    described = pipeline(decode=8e-3, workers=2)
    fine, coarse = (simulate_feed(described, 16, 0.01, steps=40, grain=grain) for grain in (1, 4))
    assert coarse.step_s == pytest.approx(fine.step_s, rel=0.02)


def test_the_first_step_waits_for_the_pipeline_to_fill():
    feed = simulate_feed(pipeline(), 10, 0.05)
    assert feed.first_step_s > 0.05
    assert feed.stalls[0] > 0
    assert feed.stall_s == pytest.approx(0, abs=1e-9)
    assert feed.slowest == "device"


def test_jitter_stalls_a_shallow_queue_more_than_a_deep_one():
    """The mean rate is above the demand, so only variance makes it wait; a deeper queue rides it out."""
    stages = (Stage("read", 0.9e-3, on_cpu=False, jitter=Jitter(3.0)),)
    waits = []
    for prefetch in (1, 16):
        described = InputPipeline(stages, 8, prefetch=prefetch, queue=8)
        waits.append(simulate_feed(described, 8, 8e-3, steps=300, seed=1).stall_s)
    assert waits[0] > 1e-4
    assert waits[0] > 2 * waits[1]


def test_the_same_seed_gives_the_same_stalls():
    stages = (Stage("read", 1e-3, on_cpu=False, jitter=Jitter(0.5)),)
    described = InputPipeline(stages, 1)
    assert simulate_feed(described, 4, 1e-3, seed=3) == simulate_feed(described, 4, 1e-3, seed=3)


@given(st.floats(1e-4, 1e-2), st.floats(1e-4, 1e-2), st.integers(1, 64), st.floats(1e-3, 1))
def test_a_step_is_never_shorter_than_compute_or_any_stage(read, decode, batch, step):
    described = pipeline(read, decode)
    feed = steady_feed(described, batch, step)
    assert feed.step_s >= step
    assert all(feed.step_s >= batch / rate * (1 - 1e-12) for rate in supply(described).values())
    assert steady_feed(described.with_stage("decode", workers=8), batch, step).step_s <= feed.step_s


@given(st.floats(1e-4, 1e-2), st.integers(1, 64), st.floats(1e-2, 1))
def test_workers_to_keep_up_keep_up(decode, batch, step):
    described = pipeline(1e-6, decode)
    need = workers_to_keep_up(described, batch, step)
    enough = InputPipeline(
        tuple(Stage(s.name, s.time, need[s.name], s.on_cpu) for s in described.stages), cores=need["cores"]
    )
    assert steady_feed(enough, batch, step).stall_s == pytest.approx(0, abs=1e-9)


def test_the_input_time_is_the_step_of_an_infinitely_fast_device():
    described = pipeline(copy_time=3e-3)
    assert input_time(described, 10) == pytest.approx(steady_feed(described, 10, 1e-9).step_s)


def test_the_rows_of_a_feed_mark_the_slowest_stage():
    rows = list(feed_rows(steady_feed(pipeline(read=5e-3), 10, 0.02)))
    assert [row["stage"] for row in rows if row["slowest"]] == ["read"]
    assert rows[0]["utilisation"] == pytest.approx(1)


def test_reads_at_once_hide_latency_until_the_bandwidth_is_full():
    rates = [read_stage(1e5, 1e9, latency=1e-3, streams=streams).rate for streams in (1, 4, 1000)]
    assert rates == pytest.approx([1 / 1.1e-3, 4 / 1.4e-3, 1000 / 101e-3])
    assert rates[-1] < 1e9 / 1e5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stage("decode", -1), "stage 'decode' needs 0 or more s"),
        (lambda: InputPipeline((), 1), "at least one stage"),
        (lambda: pipeline(prefetch=0), "1 or more cores"),
        (lambda: pipeline().with_stage("crop"), "no stage 'crop'; there are read, decode"),
        (lambda: steady_feed(pipeline(), 0, 1), "batch of 1 or more"),
        (lambda: simulate_feed(pipeline(), 8, 1, grain=3), "divides the batch of 8"),
        (lambda: several_hosts(pipeline(), 0), "1 or more hosts"),
        (lambda: read_stage(1, 0), "bandwidth above 0"),
        (lambda: read_stage(1, 1, hit=2), "0 <= hit <= 1"),
    ],
)
def test_requests_that_mean_nothing_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
