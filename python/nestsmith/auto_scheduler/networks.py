"""Test networks by name, and their tasks."""

from ..relay import testing as t
from .relay_integration import extract_tasks

__all__ = ["get_network", "network_keys"]


def get_network(name, layout=None, batch=1, dtype="float32", image=None):
    """A test network by name.

    Parameters
    ----------
    name : str
        resnet-N, resnet3d-N, mobilenet, squeezenet_v1.0, squeezenet_v1.1, vgg-N, dqn, dcgan, densenet-N, inception_v3, mlp.
    layout : str, optional
        "NHWC" or "NCHW"; the network's own by default.
    batch : int
    dtype : str
    image : tuple of int, optional
        Shape of one image.

    Returns
    -------
    mod : IRModule
    params : dict of str to NDArray

    Raises
    ------
    ValueError
        If there is no network of this name, or the number of its layers is missing.
    """
    kind, _, size = name.partition("-")
    shape = (224, 224, 3) if layout == "NHWC" else (3, 224, 224)
    more = {"image_shape": image or shape, "layout": layout} if layout else {"image_shape": image} if image else {}
    fixed = {k: v for k, v in more.items() if k != "layout"}
    small = {"layout": layout, "image_shape": (84, 84, 4)}
    makers = {
        "resnet": lambda: t.resnet.get_workload(num_layers=int(size), batch_size=batch, dtype=dtype, **more),
        "resnet3d": lambda: t.resnet_3d.get_workload(num_layers=int(size), batch_size=batch, dtype=dtype, **more),
        "mobilenet": lambda: t.mobilenet.get_workload(batch_size=batch, dtype=dtype, **more),
        "squeezenet_v1.0": lambda: t.squeezenet.get_workload(batch_size=batch, dtype=dtype, version="1.0", **fixed),
        "squeezenet_v1.1": lambda: t.squeezenet.get_workload(batch_size=batch, dtype=dtype, version="1.1", **fixed),
        "vgg": lambda: t.vgg.get_workload(batch, num_layers=int(size), dtype=dtype, **fixed),
        "densenet": lambda: t.densenet.get_workload(int(size), batch_size=batch, dtype=dtype, **fixed),
        "inception_v3": lambda: t.inception_v3.get_workload(batch_size=batch, dtype=dtype),
        "dqn": lambda: t.dqn.get_workload(batch, dtype=dtype, **(small if layout == "NHWC" else {})),
        "dcgan": lambda: t.dcgan.get_workload(batch, dtype=dtype, **({"layout": layout} if layout else {})),
        "mlp": lambda: t.mlp.get_workload(batch, dtype=dtype),
    }
    if kind not in makers:
        raise ValueError(f"network {name!r} is not known; use one of {', '.join(makers)}, with -LAYERS if it has any")
    if kind in ("resnet", "resnet3d", "vgg", "densenet") and not size.isdigit():
        raise ValueError(f"network {name!r}: say how many layers, for example {kind}-18")
    return makers[kind]()


def network_keys(target, **network):
    """Tasks of a network (arguments of :func:`get_network`) for a target text as (key here, keys elsewhere, task)."""
    mod, params = get_network(**network)
    tasks, _ = extract_tasks(mod["main"], params, target, include_simple_tasks=True)
    return [(t.workload_key, list(t.alt_keys), t) for t in tasks]
