"""Blocks of channels between convolutions: what a template computes as [N, C/b, H, W, b] stays so until somebody needs NCHW.

A value in NCHW lies as the network says (block 0) or in blocks of `b` channels. Templates take their data in any blocks: they bring it
into their own while they pad it. What is computed element by element, pools and concatenations of channels go along, per-channel
constants become [1, C/b, 1, 1, b]; everybody else gets NCHW back. So `layout_transform` stands at the borders, and where two
branches meet whose blocks differ.
"""

from .. import op
from ..expr import Call, Function, Tuple, children, post_order, with_children
from ..infer import infer_type
from ..op.layout import broadcast, follow
from ..ty import TensorType

__all__ = ["blocked"]

_CONVOLUTION = "nn.contrib_conv2d_NCHWc"


def _layout(block):
    return f"NCHW{block}c" if block else "NCHW"


def _shape(e):
    t = e.checked_type
    return tuple(t.shape) if isinstance(t, TensorType) else None


def _is_map(e):
    return len(_shape(e) or ()) == 4


def _is_pool(e):
    return "_pool2d" in e.op_name and e.attrs.layout == "NCHW" and (e.attrs.get("out_layout") or "NCHW") == "NCHW"


def _full(e):
    """The arguments of a call that goes along with its data: those as large as its result; () for another call."""
    if not _is_map(e) or not e.op_name:
        return ()
    if e.op.layout is follow and len(e.args) > 1:
        return ()
    if e.op.layout in (follow, broadcast):
        return tuple(a for a in e.args if _shape(a) == _shape(e))
    if e.op_name == "concatenate" and e.attrs.axis % 4 == 1 and isinstance(e.args[0], Tuple):
        return tuple(e.args[0].fields)
    return (e.args[0],) if _is_pool(e) else ()


class _Blocks:
    def __init__(self, block_of):
        self.block_of = block_of
        self.new, self.at, self.done = {}, {}, {}  # by id of the old node: its expression, block, and as it was wanted
        self.own, self.wanted = {}, set()  # blocks of the convolutions; ids of what is better in blocks

    def look(self, order):
        """Finds out whose result is better in blocks: it reaches a convolution by a template, or a pool."""
        for e in reversed(order):
            if not isinstance(e, Call) or not e.op_name:
                continue
            block = self.block_of(e) if e.op_name == "nn.conv2d" else 0
            if block:
                self.own[id(e)] = block
                self.wanted.add(id(e.args[0]))
            elif id(e) in self.wanted or "_pool2d" in e.op_name:
                self.wanted.update(id(a) for a in _full(e))

    def to(self, e, block):
        """The new expression of an old node in blocks."""
        have, x = self.at[id(e)], self.new[id(e)]
        if have == block:
            return x
        key = id(e), block
        if key not in self.done:
            n, c, h, w = _shape(e)
            if h == w == 1:  # no element moves
                self.done[key] = op.reshape(x, (n, c // block, 1, 1, block) if block else (n, c, 1, 1))
            else:
                self.done[key] = op.layout_transform(x, _layout(have), _layout(block))
        return self.done[key]

    def operand(self, e, like, block):
        """An argument of a broadcast whose result has the shape `like`, for a result in blocks."""
        shape = _shape(e)
        if self.at[id(e)] or shape == like:
            return self.to(e, block)
        shape, x = (1,) * (4 - len(shape)) + shape, self.new[id(e)]
        n, c, h, w = shape
        if c == 1:
            return x if shape == (1, 1, 1, 1) and len(_shape(e)) < 2 else op.reshape(x, (n, 1, h, w, 1))
        if h == w == 1:
            return op.reshape(x, (n, c // block, 1, 1, block))
        return op.layout_transform(op.reshape(x, shape), "NCHW", _layout(block))

    def convolution(self, e):
        data, out = e.args[0], self.own[id(e)] if id(e) in self.wanted else 0
        out = out if out > 1 else 0  # blocks of one channel are none
        if not out and not self.at[id(data)]:
            return with_children(e, [self.new[id(a)] for a in e.args]), 0
        attrs = e.attrs.with_(data_layout=_layout(self.at[id(data)]), out_layout=_layout(out))
        return Call(op.get(_CONVOLUTION), [self.new[id(data)], self.to(e.args[1], 0)], attrs, None, e.span), out

    def along(self, e, block):
        """A call that goes along with its data."""
        if e.op_name == "concatenate":
            return Call(e.op, [Tuple([self.to(f, block) for f in e.args[0].fields])], e.attrs, e.type_args, e.span)
        attrs = e.attrs.with_(layout=_layout(block)) if _is_pool(e) else e.attrs
        args = [self.to(a, block) for a in e.args] if _is_pool(e) else [self.operand(a, _shape(e), block) for a in e.args]
        return Call(e.op, args, attrs, e.type_args, e.span)

    def visit(self, e):
        """Rebuilds a node whose children are rebuilt; its new expression and its block."""
        if id(e) in self.own:
            return self.convolution(e)
        if isinstance(e, Call):
            full = _full(e)
            block = next((self.at[id(a)] for a in full if self.at[id(a)]), 0)
            if block and all(_shape(a)[1] % block == 0 for a in full):
                return self.along(e, block), block
        return with_children(e, [self.to(c, 0) for c in children(e)]), 0

    def run(self, body):
        order = list(post_order(body))
        self.look(order)
        if not self.own:
            return body
        for e in order:
            self.new[id(e)], self.at[id(e)] = self.visit(e)
        return self.to(body, 0)


def blocked(func, block_of):
    """A function whose convolutions hand each other blocks of channels.

    Parameters
    ----------
    func : relay.Function
    block_of : callable
        A call of nn.conv2d -> the block of its result by its template, 0 if it has none.

    Returns
    -------
    relay.Function
        Computes the same, from the same arguments to the same results.
    """
    infer_type(func)
    if any(isinstance(e, Function) for e in post_order(func.body)):
        return func
    return Function(func.params, _Blocks(block_of).run(func.body), None, func.type_params, func.attrs, func.span)
