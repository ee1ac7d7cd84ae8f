"""AlexNet, in the two shapes that published figures use.

Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv 1404.5997 (the form of
torchvision); Krizhevsky, Sutskever & Hinton, NIPS 2012, without groups (the form of MXNet's examples).
"""

from __future__ import annotations

from simnet.models.convnet import Convnet, images
from simnet.models.registry import Layers, model


def _conv(net: Convnet, index: int, out: int, kernel: int, *, stride: int = 1, padding: int = 0) -> None:
    net.conv(f"features.{index}", out, kernel, stride=stride, padding=padding)
    net.relu(f"features.{index + 1}")


def _hidden(net: Convnet, index: int, out: int) -> None:
    net.dropout(f"classifier.{index}")
    net.linear(f"classifier.{index + 1}", out)
    net.relu(f"classifier.{index + 2}")


@model(source="Krizhevsky, arXiv 1404.5997; layer sizes as torchvision lists them")
def alexnet(*, resolution: int = 224) -> Layers:
    """AlexNet, 61.1 M parameters, 1.4 GFLOP an image."""
    net = images(resolution)
    _conv(net, 0, 64, 11, stride=4, padding=2)
    net.pool("features.2", 3, stride=2)
    _conv(net, 3, 192, 5, padding=2)
    net.pool("features.5", 3, stride=2)
    _conv(net, 6, 384, 3, padding=1)
    _conv(net, 8, 256, 3, padding=1)
    _conv(net, 10, 256, 3, padding=1)
    net.pool("features.12", 3, stride=2)
    net.pool_to("avgpool", 6)
    _hidden(net, 0, 4096)
    _hidden(net, 3, 4096)
    net.linear("classifier.6", 1000)
    return tuple(net.layers)


def _normalised_conv(net: Convnet, number: int, out: int, kernel: int, *, stride: int = 1, padding: int = 0) -> None:
    net.conv(f"conv{number}", out, kernel, stride=stride, padding=padding)
    net.relu(f"relu{number}")
    if number <= 2:
        net.local_response_norm(f"norm{number}")
        net.pool(f"pool{number}", 3, stride=2)


@model(source="apache/mxnet example/image-classification, model size 203 MB; Krizhevsky et al., NIPS 2012, no groups")
def alexnet_mxnet(*, resolution: int = 224) -> Layers:
    """AlexNet as MXNet's published speeds use it: wider convolutions, 50.8 M parameters."""
    net = images(resolution)
    _normalised_conv(net, 1, 96, 11, stride=4)
    _normalised_conv(net, 2, 256, 5, padding=2)
    for number, out in ((3, 384), (4, 384), (5, 256)):
        _normalised_conv(net, number, out, 3, padding=1)
    net.pool("pool5", 3, stride=2)
    for number in (6, 7):
        net.linear(f"fc{number}", 4096)
        net.relu(f"relu{number}")
        net.dropout(f"drop{number}")
    net.linear("fc8", 1000)
    return tuple(net.layers)
