"""LateReshape: element-wise operators behind a product stay next to it.

Importers wrap a product in reshapes where its operator knows matrices only: ``add(reshape(dense(x, w), (1, 128, 768)), bias)``. A
reshape ends the fused function that the product begins, so the sum would be a kernel of its own. If the reshape only puts ones into
the shape, or keeps the last axis and the other operands know no other, it moves behind the element-wise operator:
``reshape(add(dense(x, w), bias), (1, 128, 768))``.
"""

from .. import op, passes
from ..expr import Call, rewrite, with_children
from ..infer import infer_type
from ..op.registry import BROADCAST, ELEMWISE, get
from .moves import PRODUCTS, static_shape

__all__ = ["LateReshape"]

_PLAIN = {"dtype", "a_min", "a_max", "alpha"}  # attributes that say nothing of axes


def _ones(inner, shape):
    """Axes of extent 1 that make `shape` of the shorter `inner`, or None if it takes more than that."""
    ones, at = [], 0
    for k, d in enumerate(shape):
        if len(shape) - k > len(inner) - at and d == 1:
            ones.append(k)
        elif at < len(inner) and d == inner[at]:
            at += 1
        else:
            return None
    return ones if at == len(inner) else None


def _fits(have, inner, shape):
    """The shape in which an operand `have` of an operator on `shape` meets the value of shape `inner` that became `shape`, or
    None."""
    if have == shape:
        return inner
    if inner[-1] == shape[-1] and all(d == 1 for d in have[:-1]):
        return have[-1:]
    lead, ones = len(shape) - len(have), _ones(inner, shape)
    if ones is None or any(have[k - lead] != 1 for k in ones if k >= lead):
        return None
    return tuple(d for k, d in enumerate(have, lead) if k not in ones)


@passes.makes_function_pass(opt_level=3)
def LateReshape(func, mod, ctx):
    """The pass."""
    infer_type(func)
    near, late, keep = set(), {}, []  # near: ids of products and of what follows them; late: reshapes of those

    def moved(old, new, shape):
        inner = next(late[id(a)] for a in new.args if id(a) in late)[1]
        args = []
        for was, now in zip(old.args, new.args):
            if id(now) in late and late[id(now)][1] == inner:
                args.append(late[id(now)][0])
                continue
            have = static_shape(was)
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
        shape = static_shape(old)
        if new.op_name in PRODUCTS:
            near.add(id(new))
        elif new.op_name == "reshape" and id(new.args[0]) in near and shape:
            inner = static_shape(old.args[0])
            if inner and (inner[-1] == shape[-1] or _ones(inner, shape)):
                late[id(new)] = new.args[0], inner
        elif get(new.op_name).pattern in (ELEMWISE, BROADCAST) and shape and set(new.attrs) <= _PLAIN:
            whole = [a for a in new.args if id(a) in late]
            if whole and all(static_shape(a) == shape for a, b in zip(old.args, new.args) if id(b) in late):
                return moved(old, new, shape) or new
            if any(id(b) in near and static_shape(a) == shape for a, b in zip(old.args, new.args)):
                near.add(id(new))
        return new

    return rewrite(func, visit)
