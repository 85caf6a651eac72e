"""ResNet, pre-activation form."""

from ... import check
from ..op import add, nn
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload", "plan"]

_EPS = 2e-5
_UNITS = {
    18: [2, 2, 2, 2],
    34: [3, 4, 6, 3],
    50: [3, 4, 6, 3],
    101: [3, 4, 23, 3],
    152: [3, 8, 36, 3],
    200: [3, 24, 36, 3],
    269: [3, 30, 48, 8],
}


def plan(num_layers, height):
    """(units per stage, filters of the stem and stages, bottleneck) for a depth; ValueError for depths that do not
    exist."""
    if height <= 28:
        if (num_layers - 2) % 9 == 0 and num_layers >= 164:
            return [(num_layers - 2) // 9] * 3, [16, 64, 128, 256], True
        if (num_layers - 2) % 6 == 0 and num_layers < 164:
            return [(num_layers - 2) // 6] * 3, [16, 16, 32, 64], False
        raise ValueError(f"no experiments done on num_layers {num_layers} for images up to 28; "
                         "(num_layers - 2) must divide by 6 or 9")  # fmt: skip
    if num_layers not in _UNITS:
        raise ValueError(f"no experiments done on num_layers {num_layers}; use one of {', '.join(map(str, _UNITS))}")
    if num_layers >= 50:
        return _UNITS[num_layers], [64, 256, 512, 1024, 2048], True
    return _UNITS[num_layers], [64, 64, 128, 256, 512], False


def stages(x, units, filters, bottleneck, conv, bn_relu):
    """The stages of residual units, made by ``conv(x, channels, kernel, stride, name)`` and ``bn_relu(x, name)``."""

    def unit(x, channels, stride, first, name):
        act = bn_relu(x, name + "_bn1")
        if bottleneck:
            y = conv(act, channels // 4, 1, stride, name + "_conv1")
            y = conv(bn_relu(y, name + "_bn2"), channels // 4, 3, 1, name + "_conv2")
            y = conv(bn_relu(y, name + "_bn3"), channels, 1, 1, name + "_conv3")
        else:
            y = conv(act, channels, 3, stride, name + "_conv1")
            y = conv(bn_relu(y, name + "_bn2"), channels, 3, 1, name + "_conv2")
        return add(y, conv(act, channels, 1, stride, name + "_sc") if first else x)

    for i, n in enumerate(units):
        for j in range(n):
            x = unit(x, filters[i + 1], 2 if i > 0 and j == 0 else 1, j == 0, f"stage{i + 1}_unit{j + 1}")
    return x


def get_net(batch_size, num_classes, num_layers=50, image_shape=(3, 224, 224), layout="NCHW", dtype="float32",
            **kwargs):  # fmt: skip
    """The network as a function of ``data`` and its parameters."""
    layers.one_of(layout, "NCHW", "NHWC")
    axis, kernel = layout.index("C"), layers.conv_kernel_layout(layout)
    check.integer("batch_size", batch_size, 1)
    if len(image_shape) != 3 or min(image_shape) < 1:
        raise ValueError(f"image_shape is {tuple(image_shape)}; it must be three positive sizes, {layout[1:]}")
    if image_shape[axis - 1] > 4 and 3 in image_shape:
        channels = image_shape[axis - 1]
        raise ValueError(f"image_shape is {tuple(image_shape)}, that is {channels} channels in layout {layout}")
    height = image_shape[layout.index("H") - 1]
    units, filters, bottleneck = plan(num_layers, height)

    def conv(y, channels, k, stride, name):
        return layers.conv2d(y, channels=channels, kernel_size=k, strides=stride, padding=k // 2, name=name, data_layout=layout,
                             kernel_layout=kernel)  # fmt: skip

    def bn_relu(y, name):
        return nn.relu(layers.batch_norm_infer(y, name, epsilon=_EPS, axis=axis))

    data = layers.data(batch_size, image_shape, dtype)
    y = layers.batch_norm_infer(data, "bn_data", epsilon=_EPS, axis=axis, scale=False)
    if height <= 32:
        y = conv(y, filters[0], 3, 1, "conv0")
    else:
        y = bn_relu(conv(y, filters[0], 7, 2, "conv0"), "bn0")
        y = nn.max_pool2d(y, pool_size=3, strides=2, padding=1, layout=layout)
    y = bn_relu(stages(y, units, filters, bottleneck, conv, bn_relu), "bn1")
    y = nn.batch_flatten(nn.global_avg_pool2d(y, layout=layout))
    y = nn.softmax(layers.dense_add_bias(y, units=num_classes, name="fc1"))
    return layers.network(y)


def get_workload(batch_size=1, num_classes=1000, num_layers=18, image_shape=(3, 224, 224), layout="NCHW",
                 dtype="float32", **kwargs):  # fmt: skip
    """(module, parameters) of a ResNet; `image_shape` in the order of `layout`."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs))
