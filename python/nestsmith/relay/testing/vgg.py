"""VGG (NCHW)."""

from ..expr import var
from ..op import nn
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]

_LAYERS = {11: [1, 1, 2, 2, 2], 13: [2, 2, 2, 2, 2], 16: [2, 2, 3, 3, 3], 19: [2, 2, 4, 4, 4]}
_FILTERS = [64, 128, 256, 512, 512]


def get_net(batch_size, image_shape, num_classes, dtype, num_layers=11, batch_norm=False):
    """The network as a function."""
    if num_layers not in _LAYERS:
        raise ValueError(f"num_layers {num_layers}; use one of {', '.join(map(str, _LAYERS))}")
    y = layers.data(batch_size, image_shape, dtype)
    for i, n in enumerate(_LAYERS[num_layers]):
        for j in range(n):
            name = f"{i + 1}_{j + 1}"
            y = layers.conv2d(y, kernel_size=3, padding=1, channels=_FILTERS[i], name=f"conv{name}")
            y = nn.bias_add(y, var(f"conv{name}_bias"))
            if batch_norm:
                y = layers.batch_norm_infer(y, f"bn{name}")
            y = nn.relu(y)
        y = nn.max_pool2d(y, pool_size=2, strides=2)
    y = nn.batch_flatten(y)
    for k in (6, 7):
        y = nn.dropout(nn.relu(layers.dense_add_bias(y, units=4096, name=f"fc{k}")), rate=0.5)
    y = nn.softmax(layers.dense_add_bias(y, units=num_classes, name="fc8"))
    return layers.network(y)


def get_workload(batch_size, num_classes=1000, image_shape=(3, 224, 224), dtype="float32", num_layers=11,
                 batch_norm=False):  # fmt: skip
    """(module, parameters) of VGG-11, 13, 16 or 19."""
    return create_workload(get_net(batch_size, image_shape, num_classes, dtype, num_layers, batch_norm))
