"""A three-layer perceptron."""

from ..op import nn
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]


def get_net(batch_size, num_classes=10, image_shape=(1, 28, 28), dtype="float32"):
    """The network as a function."""
    y = nn.batch_flatten(layers.data(batch_size, image_shape, dtype))
    y = nn.relu(layers.dense_add_bias(y, units=128, name="fc1"))
    y = nn.relu(layers.dense_add_bias(y, units=64, name="fc2"))
    y = nn.softmax(layers.dense_add_bias(y, units=num_classes, name="fc3"))
    return layers.network(y)


def get_workload(batch_size, num_classes=10, image_shape=(1, 28, 28), dtype="float32"):
    """(module, parameters) of the perceptron."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
