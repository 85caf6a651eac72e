"""The generator of a DCGAN."""

from ..expr import var
from ..op import nn, reshape, tanh
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]


def get_net(batch_size, random_len=100, oshape=(3, 64, 64), ngf=128, code=None, layout="NCHW", dtype="float32"):
    """The network as a function of ``data`` (batch, random_len); output oshape."""
    layers.one_of(layout, "NCHW", "NHWC")
    kernel = "IOHW" if layout == "NCHW" else "HWOI"
    axis = layout.index("C")

    def deconv(x, channels, name):
        return layers.conv2d_transpose(x, channels=channels, kernel_size=4, strides=2, padding=1,
                                       output_padding=0, data_layout=layout, kernel_layout=kernel, name=name)  # fmt: skip

    y = layers.data(batch_size, (random_len,), dtype)
    y = nn.relu(nn.dense(y, var("dense_weight"), units=4 * 4 * ngf * 8))
    y = reshape(y, (-1, ngf * 8, 4, 4) if layout == "NCHW" else (-1, 4, 4, ngf * 8))
    for name, channels in (("g2", ngf * 4), ("g3", ngf * 2), ("g4", ngf)):
        y = deconv(y, channels, name + "_deconv")
        y = nn.relu(layers.batch_norm_infer(y, name + "_batch_norm", epsilon=1e-5 + 1e-12, scale=False, axis=axis))
    y = tanh(deconv(y, oshape[0] if layout == "NCHW" else oshape[-1], "g5_deconv"))
    return layers.network(y)


def get_workload(batch_size, oshape=(3, 64, 64), ngf=128, random_len=100, layout="NCHW", dtype="float32"):
    """(module, parameters) of the generator."""
    return create_workload(get_net(batch_size, random_len, oshape, ngf, layout=layout, dtype=dtype))
