"""VGG networks: most parameters in one linear layer, so the hardest to scale.

Source: Simonyan & Zisserman, ICLR 2015, configuration D.
"""

from __future__ import annotations

from simnet.models.convnet import images
from simnet.models.registry import Layers, model

_BLOCKS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


@model(source="Simonyan & Zisserman, ICLR 2015, configuration D")
def vgg16(*, resolution: int = 224) -> Layers:
    """VGG-16, 138 M parameters."""
    net, index = images(resolution), 0
    for width, count in _BLOCKS:
        for _ in range(count):
            net.conv(f"features.{index}", width, 3, padding=1)
            net.relu(f"features.{index + 1}")
            index += 2
        net.pool(f"features.{index}", 2, stride=2)
        index += 1
    net.pool_to("avgpool", 7)
    for index in (0, 3):
        net.linear(f"classifier.{index}", 4096)
        net.relu(f"classifier.{index + 1}")
        net.dropout(f"classifier.{index + 2}")
    net.linear("classifier.6", 1000)
    return tuple(net.layers)
