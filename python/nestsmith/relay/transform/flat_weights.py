"""FlatWeights: a dense layer behind a flattened image reads it as it lies.

Importers flatten NCHW: ``dense(reshape(layout_transform(x, "NHWC", "NCHW")), w)`` in a network of NHWC convolutions moves the whole image
for the sake of the order of `w`'s columns, which can be changed once, at compile time: ``dense(reshape(x), w')``.
"""

from .. import op, passes
from ..expr import Call, Constant, rewrite, with_children
from ..infer import infer_type
from .moves import RESHAPES, static_shape

__all__ = ["FlatWeights"]


def _flattened(call):
    """(what a dense layer's data is a flattened NCHW form of, its shape in NHWC), or None."""
    flat = call.args[0]
    moved = flat.args[0] if isinstance(flat, Call) and flat.op_name in RESHAPES else None
    if not isinstance(moved, Call) or moved.op_name != "layout_transform" or moved.attrs.dst_layout != "NCHW":
        return None
    shape, rows = static_shape(moved.args[0]), static_shape(flat)
    if moved.attrs.src_layout != "NHWC" or shape is None or rows is None or len(rows) != 2 or rows[0] != shape[0]:
        return None
    return moved.args[0], shape


@passes.makes_function_pass(opt_level=3)
def FlatWeights(func, mod, ctx):
    """The pass. It wants weights to be constants already."""
    infer_type(func)

    def visit(old, new):
        if not isinstance(new, Call) or new.op_name != "nn.dense" or not isinstance(old.args[1], Constant):
            return new
        found = _flattened(old)
        if not found:
            return new
        n, h, w, c = found[1]
        image = new.args[0].args[0].args[0]  # what was rewritten
        by_channel = op.reshape(new.args[1], (-1, c, h, w))
        weight = op.reshape(op.transpose(by_channel, (0, 2, 3, 1)), (-1, h * w * c))
        return with_children(new, [op.reshape(image, (n, h * w * c)), weight])

    return rewrite(func, visit)
