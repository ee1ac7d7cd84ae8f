"""Inception-v3: many small convolutions, few parameters for its flop, so the easiest of its day to scale.

Source: Szegedy et al., CVPR 2016; names and order of the layers as torchvision has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simnet.models.convnet import Convnet, Pair, images
from simnet.models.registry import Layers, model


@dataclass(frozen=True, slots=True)
class _Conv:
    name: str
    out: int
    kernel: int | Pair = 1
    stride: int = 1
    padding: int | Pair = 0


Branch = Sequence[_Conv]


def _apply(net: Convnet, prefix: str, conv: _Conv) -> None:
    name = f"{prefix}.{conv.name}" if prefix else conv.name
    net.conv(f"{name}.conv", conv.out, conv.kernel, stride=conv.stride, padding=conv.padding, bias=False)
    net.batch_norm(f"{name}.bn")
    net.relu(f"{name}.relu")


def _branch(net: Convnet, prefix: str, convs: Branch) -> int:
    for conv in convs:
        _apply(net, prefix, conv)
    return net.shape[0]


def _block(net: Convnet, prefix: str, branches: Sequence[Branch], pool: Callable[[Convnet], int]) -> None:
    start, channels = net.shape, 0
    for branch in branches:
        net.shape = start
        channels += _branch(net, prefix, branch)
    net.shape = start
    net.concat(channels + pool(net))


def _wide(name: str, out: int, size: int) -> _Conv:
    return _Conv(name, out, (1, size), padding=(0, size // 2))


def _tall(name: str, out: int, size: int) -> _Conv:
    return _Conv(name, out, (size, 1), padding=(size // 2, 0))


def _pooled(prefix: str, out: int) -> Callable[[Convnet], int]:
    def pool(net: Convnet) -> int:
        net.pool(f"{prefix}.pool", 3, stride=1, padding=1)
        return _branch(net, prefix, (_Conv("branch_pool", out),))

    return pool


def _halved(prefix: str) -> Callable[[Convnet], int]:
    def pool(net: Convnet) -> int:
        net.pool(f"{prefix}.pool", 3, stride=2)
        return net.shape[0]

    return pool


def _block_a(net: Convnet, prefix: str, pooled: int) -> None:
    five = (_Conv("branch5x5_1", 48), _Conv("branch5x5_2", 64, 5, padding=2))
    double = (
        _Conv("branch3x3dbl_1", 64),
        _Conv("branch3x3dbl_2", 96, 3, padding=1),
        _Conv("branch3x3dbl_3", 96, 3, padding=1),
    )
    _block(net, prefix, ((_Conv("branch1x1", 64),), five, double), _pooled(prefix, pooled))


def _block_b(net: Convnet, prefix: str) -> None:
    double = (
        _Conv("branch3x3dbl_1", 64),
        _Conv("branch3x3dbl_2", 96, 3, padding=1),
        _Conv("branch3x3dbl_3", 96, 3, stride=2),
    )
    _block(net, prefix, ((_Conv("branch3x3", 384, 3, stride=2),), double), _halved(prefix))


def _block_c(net: Convnet, prefix: str, width: int) -> None:
    seven = (_Conv("branch7x7_1", width), _wide("branch7x7_2", width, 7), _tall("branch7x7_3", 192, 7))
    double = (
        _Conv("branch7x7dbl_1", width),
        _tall("branch7x7dbl_2", width, 7),
        _wide("branch7x7dbl_3", width, 7),
        _tall("branch7x7dbl_4", width, 7),
        _wide("branch7x7dbl_5", 192, 7),
    )
    _block(net, prefix, ((_Conv("branch1x1", 192),), seven, double), _pooled(prefix, 192))


def _block_d(net: Convnet, prefix: str) -> None:
    three = (_Conv("branch3x3_1", 192), _Conv("branch3x3_2", 320, 3, stride=2))
    seven = (
        _Conv("branch7x7x3_1", 192),
        _wide("branch7x7x3_2", 192, 7),
        _tall("branch7x7x3_3", 192, 7),
        _Conv("branch7x7x3_4", 192, 3, stride=2),
    )
    _block(net, prefix, (three, seven), _halved(prefix))


def _fork(net: Convnet, prefix: str, stem: Branch, name: str, suffix: str) -> int:
    """Follow a stem that ends in a wide and a tall convolution side by side; return their channels."""
    _branch(net, prefix, stem)
    start = net.shape
    wide = _branch(net, prefix, (_wide(f"{name}_{suffix}a", 384, 3),))
    net.shape = start
    return wide + _branch(net, prefix, (_tall(f"{name}_{suffix}b", 384, 3),))


def _block_e(net: Convnet, prefix: str) -> None:
    start = net.shape
    channels = _branch(net, prefix, (_Conv("branch1x1", 320),))
    net.shape = start
    channels += _fork(net, prefix, (_Conv("branch3x3_1", 384),), "branch3x3", "2")
    net.shape = start
    stem = (_Conv("branch3x3dbl_1", 448), _Conv("branch3x3dbl_2", 384, 3, padding=1))
    channels += _fork(net, prefix, stem, "branch3x3dbl", "3")
    net.shape = start
    net.concat(channels + _pooled(prefix, 192)(net))


def _stem(net: Convnet) -> None:
    _apply(net, "", _Conv("Conv2d_1a_3x3", 32, 3, stride=2))
    _apply(net, "", _Conv("Conv2d_2a_3x3", 32, 3))
    _apply(net, "", _Conv("Conv2d_2b_3x3", 64, 3, padding=1))
    net.pool("maxpool1", 3, stride=2)
    _apply(net, "", _Conv("Conv2d_3b_1x1", 80))
    _apply(net, "", _Conv("Conv2d_4a_3x3", 192, 3))
    net.pool("maxpool2", 3, stride=2)


def _auxiliary(net: Convnet) -> None:
    start = net.shape
    net.pool("AuxLogits.pool", 5, stride=3)
    _apply(net, "AuxLogits", _Conv("conv0", 128))
    _apply(net, "AuxLogits", _Conv("conv1", 768, 5))
    net.pool_to("AuxLogits.avgpool", 1)
    net.linear("AuxLogits.fc", 1000)
    net.shape = start


@model(source="Szegedy et al., CVPR 2016; layers as torchvision lists them")
def inception_v3(*, resolution: int = 299, auxiliary: bool = False, scale: bool = True) -> Layers:
    """Inception-v3, 23.8 M parameters; `auxiliary` adds the second classifier that torchvision trains with.

    TensorFlow's benchmark normalises without a `scale`: 190 gradients in place of 284. Source: tensorflow/benchmarks,
    tf_cnn_benchmarks, August 2017, where the models of ResNet alone switch it on.
    """
    net = images(resolution)
    net.scale = scale
    _stem(net)
    for letter, pooled in (("b", 32), ("c", 64), ("d", 64)):
        _block_a(net, f"Mixed_5{letter}", pooled)
    _block_b(net, "Mixed_6a")
    for letter, width in (("b", 128), ("c", 160), ("d", 160), ("e", 192)):
        _block_c(net, f"Mixed_6{letter}", width)
    if auxiliary:
        _auxiliary(net)
    _block_d(net, "Mixed_7a")
    _block_e(net, "Mixed_7b")
    _block_e(net, "Mixed_7c")
    net.pool_to("avgpool", 1)
    net.dropout("dropout")
    net.linear("fc", 1000)
    return tuple(net.layers)
