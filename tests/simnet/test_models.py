import hashlib
import json
from importlib.resources import files

import pytest

from simnet.catalog.models import load_model, model_rows
from simnet.errors import InvalidInput
from simnet.models.registry import build, find, models
from simnet.models.table import dumps, loads
from simnet.workload import BACKWARD_FACTOR

# Of "name shape" lines of named_parameters(): torchvision 0.29.1, transformers 4.57.6 (BERT sorted, see bert.py).
NAMES_AND_SHAPES = {
    "alexnet": "9c198ebdae1863e4",
    "resnet18": "c9ebc6768ee133b2",
    "resnet50": "e49e1f349708ac17",
    "resnet101": "0fb4c333c5e3978c",
    "resnet152": "14c71c6a778fbddb",
    "vgg16": "35c4623e0cd4a39d",
    "inception_v3": "7247516039c9c1d6",
    "gpt2": "bb32e7e30eec1f1c",
    "bert_base": "229d25b2675cf6aa",
}

# Forward flop of the same modules by torch.utils.flop_counter, one sample, training mode.
COUNTED_FLOP = {
    "alexnet": 1_428_376_960,
    "resnet18": 3_628_146_688,
    "resnet50": 8_178_368_512,
    "resnet101": 15_602_810_880,
    "resnet152": 23_027_253_248,
    "vgg16": 30_940_528_640,
    "inception_v3": 11_437_798_592,
    "gpt2": 291_648_307_200,
    "bert_base": 28_500_298_752,
}

# What makes our table the module that was counted.
AS_COUNTED = {"inception_v3": {"auxiliary": True}, "bert_base": {"masked": 1.0}}

# Parameters as torchvision, Hugging Face and the papers count them: exact.
PARAMETERS = {
    "alexnet": 61_100_840,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet50_v1": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg16": 138_357_544,
    "inception_v3": 23_834_568,
    "bert_base": 110_106_428,
    "bert_large": 336_226_108,
    "gpt2": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_xl": 1_557_611_200,
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
    "inception_v3": 5.71e9,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_published_count(name):
    assert build(name).num_parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", NAMES_AND_SHAPES)
def test_names_shapes_and_order_of_parameters_are_those_of_the_public_modules(name):
    lines = [f"{tensor.name} {tensor.shape}" for tensor in build(name, **AS_COUNTED.get(name, {})).parameters]
    text = "\n".join(sorted(lines) if name == "bert_base" else lines)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == NAMES_AND_SHAPES[name]


@pytest.mark.parametrize("name", COUNTED_FLOP)
def test_forward_flop_are_those_torch_counts(name):
    assert build(name, **AS_COUNTED.get(name, {})).forward_flop == COUNTED_FLOP[name]


@pytest.mark.parametrize("name", ["resnet50", "alexnet"])
def test_the_networks_that_are_run_have_the_tables_that_are_predicted(name):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    from realrun.models import build as build_module

    table = build(name)
    with torch.device("meta"):  # shapes without numbers: milliseconds instead of seconds
        module, image = build_module(name, num_classes=1000, resolution=224), torch.zeros(1, 3, 224, 224)
    assert [p.shape for p in table.parameters] == [tuple(p.shape) for p in module.parameters()]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(image)
    assert counter.get_total_flops() == table.forward_flop


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


def test_inception_with_its_second_classifier_is_torchvisions_training_form():
    assert build("inception_v3", auxiliary=True).num_parameters == 27_161_264


@pytest.mark.parametrize(("name", "tokens"), [("gpt2", 1024), ("gpt2_xl", 1024)])
def test_transformer_flop_are_twice_the_weights_plus_attention(name, tokens):
    """Kaplan et al., arXiv 2001.08361, table 1: 2 N + 2 depth context width a token, N without embeddings;
    here the output layer and both products of attention count too."""
    layers = build(name).layers
    weights = sum(t.numel for la in layers if la.kind == "linear" for t in la.parameters if t.name == "weight")
    width, vocabulary = layers[0].parameters[0].shape[::-1]
    depth = sum(la.kind == "softmax" for la in layers)
    expected = tokens * (2 * weights + 2 * width * vocabulary + 4 * depth * tokens * width)
    assert build(name).forward_flop == expected


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
    with pytest.raises(InvalidInput, match="a whole number"):
        build("resnet50", resolution=resolution)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gpt2", {"sequence_length": 0}, "whole number of tokens"),
        ("gpt2", {"heads": 7}, "multiple of the number of heads"),
        ("gpt2", {"depth": 0}, "depth and vocabulary must be 1 or more"),
        ("bert_base", {"sequence_length": 1024}, "BERT has 512 positions"),
        ("bert_base", {"masked": 0}, "a share of the tokens above 0"),
    ],
)
def test_a_transformer_that_cannot_be_is_refused(name, options, message):
    with pytest.raises(InvalidInput, match=message):
        build(name, **options)


def test_an_image_too_small_for_the_network_is_refused():
    with pytest.raises(InvalidInput, match="too small at layer"):
        build("alexnet", resolution=16)


@pytest.mark.parametrize("name", models())
def test_a_table_written_as_toml_reads_back(name):
    model = build(name)
    assert loads(dumps(model)).layers == model.layers


LENET = """
name = "lenet"
sample = "image"
source = "LeCun et al., 1998"
[[layer]]
name = "conv1"
kind = "conv"
forward_flop = 235200
reads = 1024
writes = 4704
saves = 4704
parameters = [{ name = "weight", shape = [6, 1, 5, 5] }, { name = "bias", shape = [6] }]
"""


def test_a_user_adds_a_model_by_adding_a_file(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "lenet.toml").write_text(LENET)
    assert load_model("lenet", tmp_path).num_parameters == 156
    assert load_model(str(tmp_path / "models" / "lenet.toml")).forward_flop == 235200
    assert "lenet" in {row["name"] for row in model_rows(tmp_path)}
    monkeypatch.setenv("SIMNET_CATALOG", str(tmp_path))
    assert load_model("lenet").sample == "image"
    with pytest.raises(InvalidInput, match="takes no options, got resolution"):
        load_model("lenet", resolution=32)


def test_a_model_of_the_package_is_built_with_its_options():
    assert load_model("ResNet-50", resolution=128) == build("resnet50", resolution=128)


def test_the_listing_gives_every_model_with_its_source():
    rows = {row["name"]: row for row in model_rows()}
    assert rows.keys() == models().keys()
    assert rows["resnet50"]["gradient_bytes_float32"] == 102_228_128
    assert all(row["source"] and row["summary"] for row in rows.values())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (LENET, "name = ", "is no valid TOML"),
        (LENET, 'name = "x"', "has no layers"),
        ("forward_flop", "flops", "layer 1 has an unknown key 'flops'"),
        ("235200", "-1", r"layer 1 \(conv1\), forward_flop must be a whole number"),
        ("235200", "true", "whole number, 0 or more, got True"),
        ("[6, 1, 5, 5]", '"6x5x5"', "a parameter is written"),
        ("[6, 1, 5, 5]", "[6, -1]", "shape must be a whole number"),
        ('kind = "conv"', "", "needs kind as text"),
    ],
)
def test_a_wrong_model_file_is_refused_with_its_place(old, new, message):
    with pytest.raises(InvalidInput, match=message):
        loads(LENET.replace(old, new))


def test_a_missing_model_file_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_model(str(tmp_path / "none.toml"))
    with pytest.raises(InvalidInput, match="is no folder"):
        load_model("resnet50", tmp_path / "none")


def test_every_model_of_the_published_rows_has_a_table():
    facts = files("studies") / "published" / "facts.jsonl"
    rows = [json.loads(line) for line in facts.read_text(encoding="utf-8").splitlines() if line.strip()]
    named = {row["model"] for row in rows if row.get("model")}
    assert {find(name).name for name in named} >= {
        "resnet50",
        "resnet101",
        "resnet152",
        "vgg16",
        "inception_v3",
        "alexnet",
    }


@pytest.mark.parametrize(
    ("model", "option", "value", "text"),
    [
        ("inception_v3", "scale", "no", "option scale of inception_v3 must be true or false, got 'no'"),
        ("gpt2", "width", 2.5, "option width of gpt2 must be a whole number, got 2.5"),
        ("gpt2", "depth", True, "option depth of gpt2 must be a whole number, got True"),
        ("bert_large", "masked", "all", "option masked of bert_large must be a number, got 'all'"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused(model, option, value, text):
    with pytest.raises(InvalidInput, match=text):
        build(model, **{option: value})
