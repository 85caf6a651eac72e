"""ConvertLayout: convolutions get the layout asked for, and what lies between them follows.

Every value lies as the network says or in a permutation of that (:class:`..op.layout.Layout`). The rule of an operator
says whether it can take its data as it comes; one that cannot gets its arguments back as they were. So transforms stay at
the borders only; those of constant weights are folded away later.
"""

from __future__ import annotations

from .. import op, passes
from ..expr import Call, Constant, Function, Tuple, TupleGetItem, children, post_order, with_children
from ..infer import infer_type
from ..op.layout import AS_IT_IS
from ..op.transform import axes_moved
from ..ty import TupleType
from .simplify import CanonicalizeOps

__all__ = ["ConvertLayout", "LayoutConfig", "layouts_of_convolutions"]


def layouts_of_convolutions(data_layout):
    """What to give to ConvertLayout to have all convolutions in the 2-D layout `data_layout`, for example "NHWC", and those
    of other dimensions likewise."""
    if sorted(data_layout) != sorted("NCHW"):
        raise ValueError(f"layout {data_layout!r} must be an order of the letters NCHW")
    out = {f"nn.conv2d{kind}": [data_layout, "default"] for kind in ("", "_transpose")}
    if data_layout in ("NCHW", "NHWC"):
        out["nn.conv1d"] = [data_layout.replace("H", ""), "default"]
        out["nn.conv3d"] = [data_layout.replace("H", "DH"), "default"]
    return out


class LayoutConfig:
    """A context in which ConvertLayout leaves some convolutions as they are.

    `skip_layers`: numbers of convolutions (of all kinds together, in the order of evaluation, from 0).
    """

    current: LayoutConfig | None = None

    def __init__(self, skip_layers=None):
        self.skip_layers = frozenset(skip_layers or ())

    def __enter__(self):
        self._outer, LayoutConfig.current = LayoutConfig.current, self
        return self

    def __exit__(self, *exc):
        LayoutConfig.current = self._outer


def _order_of(x, places):
    """(value, order) so that `x` with its axes moved to `places` is that value with its axes moved to that order: a change
    of axes that made `x` is not done only to be undone."""
    while inner := axes_moved(x):
        x, places = x.args[0], tuple(inner[p] for p in places)
    return x, places


def _moved(x, shape, have, want):
    """`x`, whose axes are `shape` in the order of the network and which lies as `have`, as `want`."""
    if have == want:
        return x
    letters = (have or want).old
    src, dst = (at.named(letters).new if at else letters for at in (have, want))
    source, places = _order_of(x, tuple(src.index(c) for c in dst))
    if places == tuple(range(len(places))):
        return source
    extents = {c: d for c, d in zip(letters, shape)}
    if [c for c in src if extents[c] != 1] == [c for c in dst if extents[c] != 1] and not isinstance(x, Constant):
        return op.reshape(x, tuple(extents[c] for c in dst))  # no element moves
    if source is not x:
        return op.transpose(source, places)
    return op.layout_transform(x, src, dst)


class _Converter:
    def __init__(self, desired):
        self.desired, self.skipped = desired, LayoutConfig.current.skip_layers if LayoutConfig.current else ()
        self.convolutions = 0
        self.new, self.at, self.done = {}, {}, {}  # by id of the old node: its expression, layout, and as it was wanted

    def has(self, e):
        return self.at[id(e)]

    def to(self, e, want):
        """The new expression of the old node `e`, laid out as `want`."""
        if want is AS_IT_IS:
            return self.new[id(e)]
        t, have = e.checked_type, self.at[id(e)]
        if isinstance(t, TupleType):
            want = want or [None] * len(t.fields)
        if want == have:
            return self.new[id(e)]
        key = id(e), tuple(want) if isinstance(want, list) else want
        if key not in self.done:
            self.done[key] = self.fields(e, want) if isinstance(t, TupleType) else self.tensor(e, want)
        return self.done[key]

    def fields(self, e, want):
        if isinstance(e, Tuple):
            return Tuple([self.to(f, w) for f, w in zip(e.fields, want)], e.span)
        x, types = self.new[id(e)], e.checked_type.fields
        return Tuple([_moved(TupleGetItem(x, i), types[i].shape, h, w) for i, (h, w) in enumerate(zip(self.has(e), want))])

    def tensor(self, e, want):
        shape = e.checked_type.shape
        more = len(want.old) - len(shape) if want else 0
        if not more:
            return _moved(self.new[id(e)], shape, self.has(e), want)
        return _moved(op.expand_dims(self.to(e, None), 0, more), (1,) * more + shape, None, want)

    def wanted(self, e):
        """What the user wants for a call."""
        want = self.desired.get(e.op_name)
        if want is not None and "kernel_layout" in e.attrs:
            self.convolutions += 1
            if self.convolutions - 1 in self.skipped:
                return None
        return want

    def visit(self, e):
        """Rebuilds a node whose children are rebuilt; its new expression and how that lies."""
        if isinstance(e, Call) and e.op_name and e.op.layout:
            plan = e.op.layout(e, self.has, self.wanted(e))
            if plan:
                args = [self.to(a, w) for a, w in zip(plan.args or e.args, plan.wants)]
                if plan.make:
                    return plan.make(args), plan.result
                attrs = e.attrs.with_(**plan.attrs) if plan.attrs else e.attrs
                return Call(e.op, args, attrs, e.type_args, e.span), plan.result
        if isinstance(e, Tuple):
            return with_children(e, [self.new[id(f)] for f in e.fields]), [self.has(f) for f in e.fields]
        if isinstance(e, TupleGetItem):
            return with_children(e, [self.new[id(e.tuple_value)]]), self.has(e.tuple_value)[e.index]
        t = e.checked_type
        new = with_children(e, [self.to(c, None) for c in children(e)])
        return new, [None] * len(t.fields) if isinstance(t, TupleType) else None

    def run(self, body):
        for e in post_order(body):
            self.new[id(e)], self.at[id(e)] = self.visit(e)
        return self.to(body, None)


def ConvertLayout(desired_layouts):
    """The pass. `desired_layouts`: operator name -> [data layout, kernel layout] (pools, resizing: [layout]), for example
    ``{"nn.conv2d": ["NHWC", "default"]}``. Operators that are not named keep their layout, or follow their data. Raises
    ValueError if an operator is unknown, has no layout that can be chosen, or not this one."""
    for name, want in desired_layouts.items():
        rule = op.get(name).layout
        if isinstance(want, str) or not want:
            raise ValueError(f"ConvertLayout: {name} needs a list such as ['NHWC', 'default'], not {want!r}")
        if rule is None:
            raise ValueError(f"ConvertLayout: {name} has no layout that could be chosen")

    @passes.function_pass(opt_level=3, name="ConvertLayout")
    def run(func, mod, ctx):
        infer_type(func)
        func = CanonicalizeOps()(func)
        infer_type(func)
        if any(isinstance(e, Function) for e in post_order(func.body)):
            return func
        body = _Converter(desired_layouts).run(func.body)
        return Function(func.params, body, None, func.type_params, func.attrs, func.span)

    return run
