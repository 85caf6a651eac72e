"""CombineParallelConv2D, CombineParallelDense, CombineParallelBatchMatmul: products that read the same data become one.

Where branches of a network begin with the same operator on the same data (the reductions of an Inception block, the queries, keys
and values of attention), their weights are put side by side along the channels of the result, and one operator computes all
branches. What follows in every branch element by element with arguments of channels (biases, norms, activations) is put together,
too; at the end each branch takes its slice.
"""

import collections

from .. import op as relay, passes
from ..expr import Call, Constant, Function, children, post_order, reach, rewrite
from ..infer import infer_type
from ..op.registry import BROADCAST

__all__ = ["CombineParallelBatchMatmul", "CombineParallelConv2D", "CombineParallelDense"]


def _conv2d(call):
    """(what calls must have in common to be combined, axis of the weight, axis of the result, attribute that counts the channels);
    None if it cannot be combined."""
    a, weight = call.attrs, list(call.args[1].checked_type.shape)
    if a.groups != 1 or not a.data_layout.isalpha() or not a.kernel_layout.isalpha():
        return None
    at = a.kernel_layout.index("O")
    rest = [d for i, d in enumerate(weight) if i != at]
    return rest, at, (a.out_layout or a.data_layout).index("C"), "channels"


def _dense(call):
    return [call.args[1].checked_type.shape[1]], 0, len(call.checked_type.shape) - 1, "units"


def _batch_matmul(call):
    at = 1 if call.attrs.transpose_b else 2
    shape = list(call.args[1].checked_type.shape)
    return [d for i, d in enumerate(shape) if i != at], at, 2, None


def _same(a, b, but=()):
    """Whether attributes are equal."""
    a, b = ({k: v for k, v in dict(x).items() if k not in but} for x in (a, b))
    return repr(sorted(a.items())) == repr(sorted(b.items()))


def _equal(a, b):
    return a is b or (isinstance(a, Constant) and isinstance(b, Constant) and a.checked_type == b.checked_type and (a.data == b.data).all())


class _Branches:
    """Calls of an operator on the same data, and what follows in all of them alike."""

    def __init__(self, calls, weight_axis, axis, counter, readers, result):
        self.calls, self.axis, self.readers, self.result = calls, axis, readers, result
        first = calls[0]
        attrs = first.attrs
        self.sizes = [int(c.checked_type.shape[axis]) for c in calls]
        if counter and counter in attrs:
            attrs = attrs.with_(**{counter: sum(self.sizes)})
        weight = relay.concatenate([c.args[1] for c in calls], weight_axis)
        self.merged, self.ends = Call(first.op, [first.args[0], weight], attrs, span=first.span), list(calls)
        self.later = _reached(calls, readers)

    def grow(self):
        """Takes in the next operator of all branches; whether there was one."""
        following = [self.readers[id(e)] for e in self.ends]
        if any(e is self.result for e in self.ends) or any(len(f) != 1 for f in following):
            return False
        calls = [f[0] for f in following]
        first = calls[0]
        if not all(self._alike(c, first, e) for c, e in zip(calls, self.ends)) or first.args.count(self.ends[0]) != 1:
            return False
        place = first.args.index(self.ends[0])
        args = []
        for i in range(len(first.args)):
            arg = self.merged if i == place else self._argument([c.args[i] for c in calls], first)
            if arg is None:
                return False
            args.append(arg)
        self.merged, self.ends = Call(first.op, args, first.attrs, span=first.span), calls
        return True

    def _alike(self, call, first, before):
        """Whether a branch's next operator is as the first branch's, element by element on what came before."""
        return (isinstance(call, Call) and call.op_name == first.op_name and call.op.pattern <= BROADCAST
                and _same(call.attrs, first.attrs) and len(call.args) == len(first.args)
                and call.args.count(before) == 1 and call.args.index(before) == first.args.index(self.ends[0])
                and getattr(call.checked_type, "shape", None) == before.checked_type.shape)  # fmt: skip

    def _argument(self, args, first):
        """The argument of the operator of all branches: theirs side by side, or the one that they share; None if there is none."""
        if any(id(a) in self.later for a in args):
            return None
        rank = len(self.ends[0].checked_type.shape)
        shapes = [a.checked_type.shape for a in args]
        if first.op_name == "nn.bias_add":
            at = 0 if first.attrs.axis % rank == self.axis else None
        else:
            at = self.axis - (rank - len(shapes[0]))
        if at is None or any(len(s) != len(shapes[0]) for s in shapes):
            return None
        if at >= 0 and [s[at] for s in shapes] == self.sizes and not all(n == 1 for n in self.sizes):
            rest = [[d for i, d in enumerate(s) if i != at] for s in shapes]
            place = -1 if len(shapes[0]) == 1 else at
            return relay.concatenate(args, place) if all(r == rest[0] for r in rest) else None
        broadcast = at < 0 or shapes[0][at] == 1
        return args[0] if broadcast and all(_equal(a, args[0]) for a in args) else None

    def parts(self):
        """{id of the last call of a branch: its part of the merged result}"""
        out, begin = {}, 0
        for end, size in zip(self.ends, self.sizes):
            before = self.axis  # axes that stay whole
            out[id(end)] = relay.strided_slice(self.merged, [0] * before + [begin], [-1] * before + [size], [1] * (before + 1), slice_mode="size")
            begin += size
        return out


def _reached(calls, readers):
    """The ids of everything that depends on one of the calls."""
    return {id(e) for e in reach(calls, lambda e: readers[id(e)])}


def _group(body, name, describe, least):
    """The first group of calls that can be combined."""
    readers, groups = collections.defaultdict(list), collections.defaultdict(list)
    order = list(post_order(body))
    for e in order:
        for child in {id(c): c for c in children(e)}.values():
            readers[id(child)].append(e)
    for e in order:
        if isinstance(e, Call) and e.op_name == name:
            found = describe(e)
            if found is not None:
                rest, weight_axis, axis, counter = found
                attrs = sorted((k, repr(v)) for k, v in dict(e.attrs).items() if k != counter)
                key = id(e.args[0]), repr((rest, str(e.args[1].checked_type.dtype), attrs))
                groups[key].append((e, weight_axis, axis, counter))
    for found in groups.values():
        calls, (_, weight_axis, axis, counter) = [f[0] for f in found], found[0]
        later = _reached(calls, readers)
        calls = [c for c in calls if id(c.args[1]) not in later and c.checked_type.is_static]
        if len({id(c.args[1]) for c in calls}) == len(calls) >= least:
            return _Branches(calls, weight_axis, axis, counter, readers, body)
    return None


def _combined(func, name, describe, least):
    body = infer_type(func).body
    while True:
        branches = _group(body, name, describe, least)
        if branches is None:
            return Function(func.params, body, None, func.type_params, func.attrs, func.span)
        while branches.grow():
            pass
        parts = branches.parts()
        body = infer_type(rewrite(body, lambda old, new, parts=parts: parts.get(id(old), new)))


def _pass(title, name, describe, least):
    if not isinstance(least, int) or least < 2:
        raise ValueError(f"min_num_branches is {least!r}; it must be an integer of at least 2")

    @passes.function_pass(opt_level=4, name=title)
    def run(func, mod, ctx):
        return _combined(func, name, describe, least)

    return run


def CombineParallelConv2D(min_num_branches=3):
    """Convolutions on the same data whose weights differ in their values and numbers of channels alone become one.

    Parameters
    ----------
    min_num_branches : int
        How many there must be.

    Raises
    ------
    ValueError
        If `min_num_branches` is less than 2.
    """
    return _pass("CombineParallelConv2D", "nn.conv2d", _conv2d, min_num_branches)


def CombineParallelDense(min_num_branches=3):
    """Dense layers on the same data become one with all their units. Raises as `CombineParallelConv2D`."""
    return _pass("CombineParallelDense", "nn.dense", _dense, min_num_branches)


def CombineParallelBatchMatmul(min_num_branches=3):
    """Products of the same batch of matrices become one with all their columns. Raises as `CombineParallelConv2D`."""
    return _pass("CombineParallelBatchMatmul", "nn.batch_matmul", _batch_matmul, min_num_branches)
