"""JoinInPlace: kernels write the parts of a concatenation where they will lie, and nothing is left to be copied.

A fire module of SqueezeNet joins the channels of two convolutions, a block of GoogLeNet those of four branches. Each of these kernels
stores its rows of channels in the memory of the whole, as far apart as the rows of that are: the graph has a node that joins them, but
no program for it. The schedules of the kernels stay what they are.
"""

import math

from ... import _core
from .. import passes
from ..expr import Call, Function, Tuple, count_refs, is_primitive_call, post_order, rewrite
from ..ty import TensorType

__all__ = ["JoinInPlace"]

MOST = 2**31 - 1  # elements: indices have 32 bits


def _joins(e):
    """Whether a call of a primitive function does nothing but join all its arguments, each once."""
    body = e.op.body
    return (isinstance(body, Call) and body.op_name == "concatenate" and isinstance(body.args[0], Tuple)
            and [id(f) for f in body.args[0].fields] == [id(p) for p in e.op.params])  # fmt: skip


def _sized(t):
    return isinstance(t, TensorType) and t.is_static and 0 < math.prod(t.shape) <= MOST


def _may_be_part(e, axis, readers):
    """Whether what makes `e` can write it into a larger tensor, joined along an axis: a kernel of its own, whose rows are whole vectors."""
    if (not is_primitive_call(e) or e.op.attrs.get("reshape_only") or _joins(e) or readers[id(e)] != 1
        or not _sized(e.checked_type)):  # fmt: skip
        return False
    return e.checked_type.nbytes // math.prod(e.checked_type.shape[:axis]) % _core.PROGRAM_ALIGN == 0


def _found(body):
    """{id of a call that joins: its axis}, and {id of a call that makes a part whose rows lie apart: (axis, extent of the whole)}."""
    wholes, parts = {}, {}
    order = post_order(body)
    readers = count_refs(body, order)
    for e in order:
        if not is_primitive_call(e) or not _joins(e) or not _sized(e.checked_type):
            continue
        shape = e.checked_type.shape
        axis = e.op.body.attrs.axis % len(shape)
        if all(_may_be_part(a, axis, readers) for a in e.args):
            wholes[id(e)] = axis
            if math.prod(shape[:axis]) > 1:  # else a part is one piece, as it is alone
                parts |= dict.fromkeys(map(id, e.args), (axis, shape[axis]))
    return wholes, parts


def _marked(old, new, wholes, parts):
    if id(old) in wholes:
        return Call(new.op.with_attr("join", wholes[id(old)]), new.args, span=new.span)
    if id(old) in parts:
        return Call(new.op.with_attr("joined", parts[id(old)]), new.args, span=new.span)
    return new


@passes.makes_function_pass(opt_level=0)
def JoinInPlace(func, mod, ctx):
    """The pass, after FuseOps: it marks primitive functions, those that only join (`join`: the axis) and those that make parts whose rows
    lie apart (`joined`: the axis, and how many elements the whole has there)."""
    wholes, parts = _found(func.body)
    body = rewrite(func.body, lambda old, new: _marked(old, new, wholes, parts))
    return Function(func.params, body, func.ret_type, func.type_params, func.attrs, func.span)
