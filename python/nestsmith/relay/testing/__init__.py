"""Test networks: each module has ``get_net`` (a function) and ``get_workload`` (module and parameters)."""

from . import dcgan, densenet, dqn, inception_v3, layers, lstm, mlp, mobilenet, resnet, resnet_3d, squeezenet, vgg
from .init import Constant, HeNormal, Initializer, Xavier, create_workload
from .passes import rand, run_infer_type, run_opt_pass
from .temp_op_attr import TempOpAttr

__all__ = ["TempOpAttr", "rand", "run_infer_type", "run_opt_pass", "densenet", "dcgan", "dqn", "inception_v3", "layers",
           "lstm", "mlp", "mobilenet", "resnet", "resnet_3d", "squeezenet", "vgg", "Constant", "HeNormal",
           "Initializer", "Xavier", "create_workload"]  # fmt: skip
