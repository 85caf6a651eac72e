"""DenseNet (NCHW), as the reference has it: the layers of a block are chained and the block's input is not
concatenated."""

from ..op import concatenate, nn
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]

_SPECS = {
    121: (64, 32, [6, 12, 24, 16]),
    161: (96, 48, [6, 12, 36, 24]),
    169: (69, 32, [6, 12, 32, 32]),
    201: (64, 32, [6, 12, 48, 32]),
}


def _bn_relu_conv(x, bn, channels, k, conv):
    y = nn.relu(layers.batch_norm_infer(x, bn))
    return layers.conv2d(y, channels=channels, kernel_size=k, padding=k // 2, name=conv)


def get_net(densenet_size=121, classes=1000, batch_size=4, image_shape=(3, 224, 224), dtype="float32", bn_size=4):
    """The network as a function."""
    if densenet_size not in _SPECS:
        raise ValueError(f"densenet_size {densenet_size}; use one of {', '.join(map(str, _SPECS))}")
    features, growth, blocks = _SPECS[densenet_size]
    y = layers.data(batch_size, image_shape, dtype)
    y = layers.conv2d(y, channels=features, kernel_size=7, strides=2, padding=3, name="conv1")
    y = nn.relu(layers.batch_norm_infer(y, "batch1"))
    y = nn.max_pool2d(y, pool_size=3, strides=2, padding=1)
    for b, n in enumerate(blocks):
        outs = []
        for i in range(n):
            y = _bn_relu_conv(y, f"batch_1_{b}_{i}", bn_size * growth, 1, f"conv2d_1_{b}_{i}")
            y = _bn_relu_conv(y, f"batch_2_{b}_{i}", growth, 3, f"conv2d_2_{b}_{i}")
            outs.append(y)
        y = concatenate(outs, axis=1)
        features += n * growth
        if b < len(blocks) - 1:
            features //= 2
            y = _bn_relu_conv(y, f"batch_t_{b}", features, 1, f"conv_t_{b}")
            y = nn.avg_pool2d(y, pool_size=2, strides=2)
    y = nn.relu(layers.batch_norm_infer(y, "batch2"))
    y = nn.batch_flatten(nn.avg_pool2d(y, pool_size=7))
    y = layers.dense_add_bias(y, units=classes, name="dense")
    return layers.network(y)


def get_workload(densenet_size=121, classes=1000, batch_size=4, image_shape=(3, 224, 224), dtype="float32"):
    """(module, parameters) of DenseNet-121, 161, 169 or 201."""
    return create_workload(get_net(densenet_size, classes, batch_size, image_shape, dtype))
