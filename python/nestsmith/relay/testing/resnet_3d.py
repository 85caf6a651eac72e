"""ResNet over volumes. Batch normalisation always works on axis 1, whatever the layout: the reference network does."""

from ..op import nn
from . import layers
from .init import create_workload
from .resnet import plan, stages

__all__ = ["get_net", "get_workload"]

_EPS = 2e-5


def get_net(batch_size, num_classes, num_layers=50, image_shape=None, layout="NCDHW", dtype="float32", **kwargs):
    """The network as a function; image_shape (C, D, H, W) for NCDHW, (D, H, W, C) for NDHWC."""
    layers.one_of(layout, "NCDHW", "NDHWC")
    image_shape = image_shape or ((3, 16, 112, 112) if layout == "NCDHW" else (16, 112, 112, 3))
    kernel, height = layers.conv_kernel_layout(layout), image_shape[layout.index("H") - 1]
    units, filters, bottleneck = plan(num_layers, height)

    def conv(y, channels, k, stride, name):
        padding = k // 2 if isinstance(k, int) else tuple(x // 2 for x in k)
        return layers.conv3d(y, channels=channels, kernel_size=k, strides=stride, padding=padding, name=name,
                             data_layout=layout, kernel_layout=kernel)  # fmt: skip

    def bn_relu(y, name):
        return nn.relu(layers.batch_norm_infer(y, name, epsilon=_EPS))

    data = layers.data(batch_size, image_shape, dtype)
    y = layers.batch_norm_infer(data, "bn_data", epsilon=_EPS, scale=False)
    if height <= 32:
        y = conv(y, filters[0], 3, 1, "conv0")
    else:
        y = bn_relu(conv(y, filters[0], (3, 7, 7), (1, 2, 2), "conv0"), "bn0")
    y = stages(y, units, filters, bottleneck, conv, bn_relu)
    y = nn.batch_flatten(nn.adaptive_avg_pool3d(bn_relu(y, "bn1"), output_size=(1, 1, 1), layout=layout))
    y = nn.softmax(layers.dense_add_bias(y, units=num_classes, name="fc1"))
    return layers.network(y)


def get_workload(batch_size=1, num_classes=1000, num_layers=18, image_shape=None, layout="NCDHW", dtype="float32",
                 **kwargs):  # fmt: skip
    """(module, parameters) of a 3-D ResNet."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs))
