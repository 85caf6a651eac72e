"""CheckIndices: scatters and `sparse_to_dense` look at their indices once, before they begin.

They compare every element's place with the indices (`topi.scatter_elements`). One out of range would land nowhere: it ends the run with
an error, as in other lookups. The check is a kernel of its own, because a scatter reads each index many times.
"""

from .. import op, passes
from ..expr import Call, rewrite
from ..infer import infer_type

__all__ = ["CheckIndices"]

_CHECKS = ("check_index", "check_index_first")


# Name: (argument with the indices, axis of them along which there is one for each axis looked up, whether -1 is the last, the
# extents that they are for: f(attrs, extents of the result, shape of the indices)).
_LOOKUPS = {
    "scatter_elements": (1, 0, True, lambda a, out, i: [out[a.axis]]),
    "scatter_nd": (1, 0, True, lambda a, out, i: out[: i[0]] if isinstance(i[0], int) else []),
    "sparse_to_dense": (0, 1, False, lambda a, out, i: out),
}


def _checked(index, extents, axis, from_end, what):
    """Indices as they come out of a check."""
    if len(set(extents)) == 1:
        return op.check_index(index, extents[0], from_end, what, True)
    rows = op.split(index, len(extents), axis)
    return op.concatenate([op.check_index(rows[k], n, from_end, what, True) for k, n in enumerate(extents)], axis)


@passes.makes_function_pass(opt_level=0)
def CheckIndices(func, mod, ctx):
    """Indices of `scatter_elements`, `scatter_nd` and `sparse_to_dense` that come from data are checked before they are used."""
    infer_type(func)

    def visit(old, new):
        if not isinstance(new, Call) or new.op_name not in _LOOKUPS:
            return new
        at, axis, from_end, extents_of = _LOOKUPS[new.op_name]
        index, shape = new.args[at], old.args[at].checked_type.shape
        extents = list(extents_of(new.attrs, old.checked_type.shape, shape))
        known = extents and all(isinstance(n, int) and n > 0 for n in (*extents, *shape))
        if not known or (isinstance(index, Call) and index.op_name in _CHECKS):
            return new
        args = list(new.args)
        args[at] = _checked(index, extents, axis, from_end, new.op_name)
        return Call(new.op, args, new.attrs, new.type_args, new.span)

    return rewrite(func, visit)
