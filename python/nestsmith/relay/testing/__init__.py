"""Test networks: each module has ``get_net`` (a function) and ``get_workload`` (module and parameters)."""

from . import dcgan, densenet, dqn, inception_v3, layers, lstm, mlp, mobilenet, resnet, resnet_3d, squeezenet, vgg
from .init import Constant, HeNormal, Initializer, Xavier, create_workload

__all__ = [
    "densenet",
    "dcgan",
    "dqn",
    "inception_v3",
    "layers",
    "lstm",
    "mlp",
    "mobilenet",
    "resnet",
    "resnet_3d",
    "squeezenet",
    "vgg",
    "Constant",
    "HeNormal",
    "Initializer",
    "Xavier",
    "create_workload",
]
