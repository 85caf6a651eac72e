"""ResNet over volumes. Batch normalisation always works on axis 1, whatever the layout: the reference network does."""

from ..expr import Function, free_vars, var
from ..op import add, nn
from ..ty import TensorType
from . import layers
from .init import create_workload
from .resnet import plan

__all__ = ["get_net", "get_workload"]

_EPS = 2e-5


def get_net(batch_size, num_classes, num_layers=50, image_shape=None, layout="NCDHW", dtype="float32", **kwargs):
    """The network as a function; image_shape (C, D, H, W) for NCDHW, (D, H, W, C) for NDHWC."""
    if layout not in ("NCDHW", "NDHWC"):
        raise ValueError(f"layout {layout!r}; use NCDHW or NDHWC")
    image_shape = image_shape or ((3, 16, 112, 112) if layout == "NCDHW" else (16, 112, 112, 3))
    kernel, height = layers.conv_kernel_layout(layout), image_shape[layout.index("H") - 1]
    units, filters, bottleneck = plan(num_layers, height)

    def conv(y, f, k, s, name, pad=None):
        k, s = ((k,) * 3 if isinstance(k, int) else k), ((s,) * 3 if isinstance(s, int) else s)
        return layers.conv3d(y, channels=f, kernel_size=k, strides=s, padding=pad or tuple(x // 2 for x in k),
                             name=name, data_layout=layout, kernel_layout=kernel)  # fmt: skip

    def bn_relu(y, name):
        return nn.relu(layers.batch_norm_infer(y, name, epsilon=_EPS))

    def unit(x, f, s, first, name):
        act = bn_relu(x, name + "_bn1")
        if bottleneck:
            y = conv(act, f // 4, 1, s, name + "_conv1")
            y = conv(bn_relu(y, name + "_bn2"), f // 4, 3, 1, name + "_conv2")
            y = conv(bn_relu(y, name + "_bn3"), f, 1, 1, name + "_conv3")
        else:
            y = conv(act, f, 3, s, name + "_conv1")
            y = conv(bn_relu(y, name + "_bn2"), f, 3, 1, name + "_conv2")
        return add(y, conv(act, f, 1, s, name + "_sc") if first else x)

    y = layers.batch_norm_infer(var("data", TensorType((batch_size, *image_shape), dtype)), "bn_data", epsilon=_EPS,
                                scale=False)  # fmt: skip
    if height <= 32:
        y = conv(y, filters[0], 3, 1, "conv0")
    else:
        y = bn_relu(conv(y, filters[0], (3, 7, 7), (1, 2, 2), "conv0"), "bn0")
    for i, n in enumerate(units):
        for j in range(n):
            y = unit(y, filters[i + 1], 2 if i > 0 and j == 0 else 1, j == 0, f"stage{i + 1}_unit{j + 1}")
    y = nn.batch_flatten(nn.adaptive_avg_pool3d(bn_relu(y, "bn1"), output_size=(1, 1, 1), layout=layout))
    y = nn.softmax(layers.dense_add_bias(y, units=num_classes, name="fc1"))
    return Function(free_vars(y), y)


def get_workload(batch_size=1, num_classes=1000, num_layers=18, image_shape=None, layout="NCDHW", dtype="float32",
                 **kwargs):  # fmt: skip
    """(module, parameters) of a 3-D ResNet."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs))
