"""The networks of the tests, at full size and small enough to compile and compare."""

from nestsmith import IRModule, relay
from nestsmith.relay import testing as T

NHWC = {"layout": "NHWC", "image_shape": (224, 224, 3)}
FULL = {
    "resnet-18-NHWC": lambda: T.resnet.get_workload(num_layers=18, **NHWC),
    "resnet-18-NCHW": lambda: T.resnet.get_workload(num_layers=18),
    "resnet-50-NHWC": lambda: T.resnet.get_workload(num_layers=50, **NHWC),
    "mobilenet-NHWC": lambda: T.mobilenet.get_workload(**NHWC),
    "mobilenet-NCHW": lambda: T.mobilenet.get_workload(),
    "squeezenet_v1.1-NCHW": lambda: T.squeezenet.get_workload(version="1.1"),
    "dqn-NHWC": lambda: T.dqn.get_workload(1, image_shape=(84, 84, 4), layout="NHWC"),
    "mlp-NCHW": lambda: T.mlp.get_workload(1),
    "resnet3d-NCDHW": lambda: T.resnet_3d.get_workload(image_shape=(3, 16, 224, 224)),
    "resnet3d-NDHWC": lambda: T.resnet_3d.get_workload(image_shape=(16, 224, 224, 3), layout="NDHWC"),
}
# small inputs: every operator and pass of the full network at a fraction of the work
SMALL = {
    "resnet18-NHWC": lambda: T.resnet.get_workload(
        num_layers=18, layout="NHWC", image_shape=(64, 64, 3), num_classes=10
    ),
    "resnet18-NCHW": lambda: T.resnet.get_workload(num_layers=18, image_shape=(3, 64, 64), num_classes=10),
    "resnet3d-NCDHW": lambda: T.resnet_3d.get_workload(image_shape=(3, 4, 40, 40), num_classes=10),
    "mobilenet-NHWC": lambda: T.mobilenet.get_workload(layout="NHWC", image_shape=(64, 64, 3), num_classes=10),
    "mobilenet-NCHW": lambda: T.mobilenet.get_workload(image_shape=(3, 64, 64), num_classes=10),
    "squeezenet": lambda: T.squeezenet.get_workload(image_shape=(3, 64, 64), num_classes=10),
    "dqn": lambda: T.dqn.get_workload(1),
    "dcgan": lambda: T.dcgan.get_workload(1, ngf=8),
    "mlp": lambda: T.mlp.get_workload(1),
    "cifar": lambda: T.resnet.get_workload(num_layers=20, image_shape=(3, 28, 28), num_classes=10),
}


def logits(mod):
    """The module without its softmax, which would hide small differences."""
    f = mod["main"]
    if getattr(f.body, "op_name", "") == "nn.softmax":
        f = relay.Function(f.params, f.body.args[0])
    return IRModule.from_expr(f)


def numpy_params(params):
    return {k: v.numpy() for k, v in params.items()}
