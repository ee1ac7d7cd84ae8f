import pytest

from simnet.errors import InvalidInput
from simnet.models.registry import build, find, models
from simnet.workload import BACKWARD_FACTOR

# Parameters as torchvision, Hugging Face and the papers count them: exact.
PARAMETERS = {
    "alexnet": 61_100_840,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet50_v1": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg16": 138_357_544,
}

# Multiply-adds of one forward pass at 224 pixels, as published, to the digits published.
MULTIPLY_ADDS = {
    "alexnet": 0.71e9,
    "resnet18": 1.81e9,
    "resnet50": 4.09e9,
    "resnet50_v1": 3.86e9,
    "resnet101": 7.80e9,
    "resnet152": 11.51e9,
    "vgg16": 15.47e9,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_published_count(name):
    assert build(name).num_parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", MULTIPLY_ADDS)
def test_forward_flop_is_twice_the_published_multiply_adds(name):
    assert build(name).forward_flop / 2 == pytest.approx(MULTIPLY_ADDS[name], abs=0.005e9)


def test_figures_of_the_money_paper_are_met():
    """Published as 61 M parameters and 1.5 GFLOP, 25.6 M and 7.7 GFLOP, each to two digits."""
    alexnet, resnet = build("alexnet"), build("resnet50_v1")
    assert alexnet.num_parameters == pytest.approx(61e6, rel=0.005)
    assert alexnet.forward_flop == pytest.approx(1.5e9, rel=0.05)
    assert resnet.forward_flop == pytest.approx(7.7e9, rel=0.005)


def test_ninety_epochs_of_resnet50_are_the_published_1e18_flop():
    """You et al. count 7.7 GFLOP an image, 1.28 M images, 90 epochs, forward only: 0.9e18; with backward 2.8e18."""
    images = 90 * 1_281_167
    assert build("resnet50_v1").forward_flop * images == pytest.approx(0.89e18, rel=0.01)
    assert build("resnet50").training_flop * images == pytest.approx(2.83e18, rel=0.01)


def test_mxnet_alexnet_is_the_published_203_megabytes():
    assert build("alexnet_mxnet").gradient_bytes() == pytest.approx(203e6, rel=0.005)


@pytest.mark.parametrize("name", models())
def test_backward_is_twice_forward_in_every_layer(name):
    model = build(name)
    assert all(layer.backward_flop == BACKWARD_FACTOR * layer.forward_flop for layer in model.layers)
    assert model.training_flop == 3 * model.forward_flop


@pytest.mark.parametrize("name", models())
def test_every_layer_reads_and_writes(name):
    assert all(layer.reads > 0 and layer.writes > 0 for layer in build(name).layers)


@pytest.mark.parametrize("name", models())
def test_every_model_names_its_source(name):
    assert models()[name].summary
    assert build(name).source


def test_flop_grow_with_the_square_of_the_resolution():
    small, large = build("resnet50", resolution=224), build("resnet50", resolution=448)
    convolutions = [sum(la.forward_flop for la in m.layers if la.kind == "conv") for m in (small, large)]
    assert convolutions[1] == 4 * convolutions[0]
    assert small.num_parameters == large.num_parameters


def test_registration_order_is_torchs():
    names = [tensor.name for tensor in build("resnet18").parameters]
    assert names[:3] == ["conv1.weight", "bn1.weight", "bn1.bias"]
    assert names[-2:] == ["fc.weight", "fc.bias"]
    at = names.index("layer2.0.bn2.bias")
    assert names[at + 1 : at + 4] == [f"layer2.0.downsample.{p}" for p in ("0.weight", "1.weight", "1.bias")]
    assert len(names) == 62


@pytest.mark.parametrize("name", ["ResNet-50", "resnet50", "ResNet-50 v1.5", "RESNET_50"])
def test_published_spellings_find_resnet50(name):
    assert find(name).name == "resnet50"


def test_an_unknown_model_lists_the_known():
    with pytest.raises(InvalidInput, match=r"unknown model 'resnet51'.*resnet50"):
        build("resnet51")


def test_an_unknown_option_names_those_there_are():
    with pytest.raises(InvalidInput, match=r"takes no option 'depth'.*resolution"):
        build("resnet50", depth=3)


@pytest.mark.parametrize("resolution", [0, -224, 224.5, True])
def test_a_resolution_that_is_no_pixel_count_is_refused(resolution):
    with pytest.raises(InvalidInput, match="whole number of pixels"):
        build("resnet50", resolution=resolution)


def test_an_image_too_small_for_the_network_is_refused():
    with pytest.raises(InvalidInput, match="too small at layer"):
        build("alexnet", resolution=16)
