import numpy as np
import pytest

from simnet.errors import InvalidInput
from simnet.image_input import (
    DECODE,
    CachePolicy,
    End,
    batch_interval,
    fused_decode,
    hit_fraction,
    image_pipeline,
    shard_imbalance,
)
from simnet.pipeline import input_time, several_hosts, steady_feed, workers_to_keep_up
from simnet.scenario import Input


def test_a_v100_at_resnet50_speed_needs_about_eight_vcpus():
    """Public advice; 1,376 images/s is the published speed of a V100 in fp16 at batch 192."""
    need = workers_to_keep_up(image_pipeline(cores=64, storage_bandwidth=1e10), 192, 192 / 1376)
    assert need["cores"] in (8, 9)
    fused = workers_to_keep_up(image_pipeline(cores=64, storage_bandwidth=1e10, fused=True), 192, 192 / 1376)
    assert fused["cores"] < need["cores"]


def test_two_hosts_feed_twice_as_much():
    one = image_pipeline(cores=8, storage_bandwidth=1e10)
    assert input_time(several_hosts(one, 2), 64) == pytest.approx(input_time(one, 64) / 2)


@pytest.mark.parametrize("fused", [False, True])
def test_the_fast_and_slow_ends_enclose_the_stated_rates(fused):
    ends = [
        image_pipeline(cores=8, storage_bandwidth=2e8, fused=fused, end=end) for end in (End.FAST, End.VALUE, End.SLOW)
    ]
    for stages in zip(*(end.stages for end in ends), strict=True):
        times = [stage.time for stage in stages]
        assert times == sorted(times)
    assert ends[0].copy_time < ends[1].copy_time < ends[2].copy_time


def test_decoding_with_the_crop_saves_but_not_everything():
    assert 0.54 * DECODE.value < fused_decode(DECODE.value) < DECODE.value


def test_slow_storage_is_named_and_a_full_cache_removes_it():
    """A host of 8 devices behind 1 GbE: 125 MB/s carry 1,068 images/s, whatever its cores."""
    cold = steady_feed(image_pipeline(cores=96, storage_bandwidth=125e6, num_devices=8), 96, 0.3)
    warm = steady_feed(image_pipeline(cores=96, storage_bandwidth=125e6, num_devices=8, hit=1.0), 96, 0.3)
    assert cold.slowest == "read"
    assert cold.samples_per_s == pytest.approx(125e6 / 117e3)
    assert (warm.slowest, warm.stall_s) == ("device", 0)


def test_a_pinned_cache_serves_its_share_and_nothing_at_first():
    assert hit_fraction(35, 100) == 0.35
    assert hit_fraction(200, 100) == 1
    assert hit_fraction(200, 100, epoch=0) == 0


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_an_lru_cache_serves_what_a_simulated_one_does(fraction):
    rng, samples = np.random.default_rng(5), 1500
    cache, hits, reads = {}, 0, 0
    for epoch in range(8):
        for sample in rng.permutation(samples):
            hit = sample in cache
            cache.pop(sample, None)
            cache[sample] = None
            if len(cache) > fraction * samples:
                cache.pop(next(iter(cache)))
            if epoch >= 2:
                reads, hits = reads + 1, hits + hit
    expected = hit_fraction(round(1000 * fraction), 1000, CachePolicy.LRU)
    assert hits / reads == pytest.approx(expected, abs=0.01)


def test_whole_files_make_unequal_shards():
    assert shard_imbalance(1024, 128) == 1
    assert shard_imbalance(1024, 1000) == pytest.approx(2 * 1000 / 1024)
    with pytest.raises(InvalidInput, match="8 files cannot be sharded over 9 hosts"):
        shard_imbalance(8, 9)


def test_a_cache_of_nothing_is_refused():
    with pytest.raises(InvalidInput, match="means nothing"):
        hit_fraction(1, 0)


def test_the_interval_between_batches_holds_its_value():
    spec = Input(64, 1.25e9, cached=0.2)
    found = batch_interval(spec, 96, num_devices=8)
    assert found.low < found.value < found.high
    assert found.value == input_time(image_pipeline(cores=64, storage_bandwidth=1.25e9, num_devices=8, hit=0.2), 96)
