"""MobileNet v1."""

from ..expr import var
from ..op import nn
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]

_BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
_SHALLOW = [*_BLOCKS[:6], (1024, 2), (1024, 1)]


def _separable(x, name, cin, cout, stride, layout, dtype):
    axis = layout.index("C")
    shape = (cin, 1, 3, 3) if layout == "NCHW" else (3, 3, cin, 1)
    y = layers.conv2d(x, var(name + "_weight", shape=shape, dtype=dtype), channels=cin, groups=cin, kernel_size=3,
                      strides=stride, padding=1, data_layout=layout,
                      kernel_layout=layers.conv_kernel_layout(layout, True), name=name + "_depthwise_conv1")  # fmt: skip
    y = nn.relu(layers.batch_norm_infer(y, name + "_bn1", epsilon=1e-5, axis=axis))
    y = layers.conv2d(y, channels=cout, kernel_size=1, data_layout=layout,
                      kernel_layout=layers.conv_kernel_layout(layout), name=name + "_conv2")  # fmt: skip
    return nn.relu(layers.batch_norm_infer(y, name + "_bn2", epsilon=1e-5, axis=axis))


def get_net(batch_size, num_classes=1000, image_shape=(3, 224, 224), dtype="float32", alpha=1.0, is_shallow=False,
            layout="NCHW"):  # fmt: skip
    """The network as a function; `alpha` scales every channel count."""
    layers.one_of(layout, "NCHW", "NHWC")
    width = int(32 * alpha)
    y = layers.conv2d(layers.data(batch_size, image_shape, dtype), channels=width, kernel_size=3,
                      strides=2, padding=1, name="conv_block_1_conv", data_layout=layout,
                      kernel_layout=layers.conv_kernel_layout(layout))  # fmt: skip
    # The reference network gives no axis here, so in NHWC this one normalises over the height.
    y = nn.relu(layers.batch_norm_infer(y, "conv_block_1_bn", epsilon=1e-5))
    for k, (cout, stride) in enumerate(_SHALLOW if is_shallow else _BLOCKS):
        y = _separable(y, f"separable_conv_block_{k + 1}", width, int(cout * alpha), stride, layout, dtype)
        width = int(cout * alpha)
    y = nn.batch_flatten(nn.global_avg_pool2d(y, layout=layout))
    y = nn.softmax(nn.bias_add(nn.dense(y, var("fc_weight"), units=num_classes), var("fc_bias")))
    return layers.network(y)


def get_workload(batch_size=1, num_classes=1000, image_shape=(3, 224, 224), dtype="float32", layout="NCHW"):
    """(module, parameters) of MobileNet v1; `image_shape` in the order of `layout`."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype, layout=layout))
