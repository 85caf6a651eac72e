"""ForTensorCores: convolutions that tensor cores may compute have their channels and weights as these copy them best.

* The first layer of a network has three channels. Those of one pixel are copied to shared memory together if they make 8 or 16 bytes;
  of three, each is a copy of its own, with an address of its own. So data and weights get a fourth channel of zeros: the data where it
  is moved or cast in any case, the weights at compile time.
* Tensor cores read factors of 32 and of 8 bits along the sum only (``ldmatrix`` turns those of 16 bits around). So a weight for TF32, or
  one of 8 bits for products that are added up in int32, has its input channels last, as OHWI, and is copied 16 bytes at a time instead
  of 4, or of one.
* Factors for TF32, of products of matrices too, are rounded to its 11 bits where they are made (:mod:`.factors`).
"""

import math

from ...numerics import float32_mode, is_byte_product, is_float
from .. import op, passes
from ..expr import Call, Constant, rewrite
from ..infer import infer_type
from ..op import nn
from ..op.nn.convolution import is_depthwise
from ..op.registry import BROADCAST, ELEMWISE, INJECTIVE, get
from ..ty import Any
from .expansions import brings_image, reads_image
from .factors import round_factors

__all__ = ["ForTensorCores"]

TOGETHER, MOST = 4, 8  # channels; with more, what is added costs what it saves


def _more_channels(data):
    """How many channels are added to the data of a convolution."""
    channels, source = data.checked_type.shape[3], getattr(data, "op_name", None)
    if isinstance(channels, Any) or channels > MOST or source is None:
        return 0
    moved = get(source).pattern in (ELEMWISE, BROADCAST, INJECTIVE)  # otherwise it would take a kernel of its own
    return -int(channels) % TOGETHER if moved else 0


def ForTensorCores(target):
    """The pass for a target. It wants weights to be constants already."""

    @passes.function_pass(opt_level=3, name="ForTensorCores")
    def run(func, mod, ctx):
        infer_type(func)
        mode = float32_mode(ctx.config)

        def multiplied(dtype):
            return target.on_tensor_cores(dtype) and (dtype != "float32" or mode != "strict")

        def visit(old, new):
            if not isinstance(new, Call) or new.op_name != "nn.conv2d":
                return new
            a, (dtype, weight) = new.attrs, (x.checked_type.dtype for x in old.args)
            whole = is_byte_product(dtype, weight, old.checked_type.dtype)
            if (a.data_layout, a.kernel_layout) != ("NHWC", "HWIO") or not isinstance(old.args[1], Constant) or is_depthwise(old):
                return new
            if not multiplied(dtype) or not (whole or is_float(dtype)):
                return new
            image = brings_image(old.args[0]) and reads_image(old, math.inf)
            if image and mode == "float32x3" and ctx.config.get("relay.FuseOps.any_first_layout"):
                return new  # it takes in the change of layout, element by element: no kernel is needed to bring the image
            args, attrs = list(new.args), dict(a)
            if a.groups == 1 and (more := _more_channels(old.args[0])):
                args = [nn.pad(x, [(0, more if k == axis else 0) for k in range(4)]) for x, axis in zip(args, (3, 2))]
            if whole or dtype == "float32":
                args[1], attrs["kernel_layout"] = op.transpose(args[1], (3, 0, 1, 2)), "OHWI"
            made = nn.conv2d(*args, **attrs)
            made.span = new.span
            return made

        if not target.has_tensor_cores:
            return func
        made = rewrite(func, visit)
        return round_factors(made) if mode == "tf32" and multiplied("float32") else made

    return run
