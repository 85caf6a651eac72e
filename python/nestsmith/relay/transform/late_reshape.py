"""LateReshape: element-wise operators behind a product stay next to it.

Importers wrap a product in reshapes where its operator knows matrices only: ``add(reshape(dense(x, w), (1, 128, 768)), bias)``. A
reshape ends the fused function that the product begins, so the sum would be a kernel of its own. If the reshape only puts ones in
front of the shape, it moves behind the element-wise operator: ``reshape(add(dense(x, w), bias), (1, 128, 768))``.
"""

from __future__ import annotations

from .. import op
from .. import passes as _t
from ..expr import Call, rewrite, with_children
from ..infer import infer_type
from ..op.registry import BROADCAST, ELEMWISE, get
from ..ty import Any, TensorType

__all__ = ["LateReshape"]

_PLAIN = {"dtype", "a_min", "a_max", "alpha"}  # attributes that say nothing of axes
_PRODUCTS = ("nn.dense", "nn.batch_matmul", "nn.matmul")


def _shape(expr):
    """The constant shape of a typed expression, or None."""
    t = expr.checked_type
    if not isinstance(t, TensorType) or any(isinstance(d, Any) for d in t.shape):
        return None
    return tuple(int(d) for d in t.shape)


def _fits(shape, inner, whole):
    """The shape in which an operand of an operator on `whole` meets a value of shape `inner`, or None."""
    if len(shape) > len(inner):
        if any(d != 1 for d in shape[: len(shape) - len(inner)]):
            return None
        shape = shape[len(shape) - len(inner) :]
    return shape if all(d in (1, n) for d, n in zip(reversed(shape), reversed(inner))) else None


def LateReshape():
    """The pass."""

    @_t.function_pass(opt_level=3, name="LateReshape")
    def run(func, mod, ctx):
        infer_type(func)
        near, late, keep = set(), {}, []  # near: ids of products and of what follows them; late: reshapes of those

        def moved(old, new, shape):
            inner = next(late[id(a)] for a in new.args if id(a) in late)[1]
            args = []
            for was, now in zip(old.args, new.args):
                if id(now) in late and late[id(now)][1] == inner:
                    args.append(late[id(now)][0])
                    continue
                have = _shape(was)
                want = _fits(have, inner, shape) if have is not None else None
                if want is None:
                    return None
                args.append(now if want == have else op.reshape(now, want))
            body = with_children(new, args)
            out = op.reshape(body, shape)
            near.add(id(body))
            late[id(out)] = body, inner
            keep.extend((body, out))
            return out

        def visit(old, new):
            keep.append(new)
            if not isinstance(new, Call) or not new.op_name:
                return new
            shape = _shape(old)
            if new.op_name in _PRODUCTS:
                near.add(id(new))
            elif new.op_name == "reshape" and id(new.args[0]) in near and shape:
                inner = _shape(old.args[0])
                ones = len(shape) - len(inner) if inner else 0
                if ones > 0 and shape[ones:] == inner and all(d == 1 for d in shape[:ones]):
                    late[id(new)] = new.args[0], inner
            elif get(new.op_name).pattern in (ELEMWISE, BROADCAST) and shape and set(new.attrs) <= _PLAIN:
                whole = [a for a in new.args if id(a) in late]
                if whole and all(_shape(a) == shape for a, b in zip(old.args, new.args) if id(b) in late):
                    return moved(old, new, shape) or new
                if any(id(b) in near and _shape(a) == shape for a, b in zip(old.args, new.args)):
                    near.add(id(new))
            return new

        return rewrite(func, visit)

    return run
