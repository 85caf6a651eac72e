"""SqueezeNet 1.0 and 1.1 (NCHW)."""

from ..expr import var
from ..op import concatenate, nn
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]

_V10 = [(16, 64), (16, 64), (32, 128), None, (32, 128), (48, 192), (48, 192), (64, 256), None, (64, 256)]
_V11 = [(16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256)]


def _conv(x, channels, k, name, stride=1, pad=0):
    y = layers.conv2d(x, channels=channels, kernel_size=k, strides=stride, padding=pad, name=name)
    return nn.relu(nn.bias_add(y, var(name + "_bias")))


def get_net(batch_size, image_shape, num_classes, version, dtype):
    """The network as a function."""
    assert version in ("1.0", "1.1"), f"version {version!r} of SqueezeNet does not exist; use '1.0' or '1.1'"
    y = layers.data(batch_size, image_shape, dtype)
    y = _conv(y, 96, 7, "conv1", 2, 3) if version == "1.0" else _conv(y, 64, 3, "conv1", 2, 1)
    k = 0
    for spec in [None, *(_V10 if version == "1.0" else _V11)]:
        if spec is None:
            y = nn.max_pool2d(y, pool_size=3, strides=2)
            continue
        k += 1
        s = _conv(y, spec[0], 1, f"fire{k}_input_conv")
        y = concatenate((_conv(s, spec[1], 1, f"fire{k}_left_conv"), _conv(s, spec[1], 3, f"fire{k}_right_conv", 1, 1)),
                        axis=1)  # fmt: skip
    y = _conv(nn.dropout(y, 0.5), num_classes, 1, "conv_final")
    y = nn.softmax(nn.batch_flatten(nn.global_avg_pool2d(y)))
    return layers.network(y)


def get_workload(batch_size=1, num_classes=1000, version="1.0", image_shape=(3, 224, 224), dtype="float32"):
    """(module, parameters) of SqueezeNet."""
    return create_workload(get_net(batch_size, image_shape, num_classes, version, dtype))
