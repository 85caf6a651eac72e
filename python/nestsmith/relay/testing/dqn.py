"""The Q-network for Atari games."""

from ..expr import var
from ..op import nn
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]


def get_net(batch_size, num_actions=18, image_shape=(4, 84, 84), dtype="float32", layout="NCHW"):
    """The network as a function; `image_shape` in the order of `layout`."""
    axis = layout.index("C")
    y = layers.data(batch_size, image_shape, dtype)
    for k, (channels, size, stride) in enumerate([(32, 8, 4), (64, 4, 2), (64, 3, 1)]):
        y = layers.conv2d(y, channels=channels, kernel_size=size, strides=stride, padding=0,
                          data_layout=layout, kernel_layout=layers.conv_kernel_layout(layout), name=f"conv{k + 1}")  # fmt: skip
        y = nn.relu(nn.bias_add(y, var(f"conv{k + 1}_bias"), axis=axis))
    y = nn.relu(layers.dense_add_bias(nn.batch_flatten(y), units=512, name="dense1"))
    y = layers.dense_add_bias(y, units=num_actions, name="dense2")
    return layers.network(y)


def get_workload(batch_size, num_actions=18, image_shape=(4, 84, 84), dtype="float32", layout="NCHW"):
    """(module, parameters) of the Q-network."""
    return create_workload(get_net(batch_size, num_actions, image_shape, dtype, layout))
