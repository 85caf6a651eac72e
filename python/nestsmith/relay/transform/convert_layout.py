"""ConvertLayout: convolutions get the layout asked for, and what lies between them follows.

Every value is in its old layout or in a new one, a permutation of it. An operator that can follow takes its input as
it comes and
remaps its axes; one that cannot gets its arguments back in the old layout. So transforms stay at the borders only;
those of constant weights are folded away later.
"""

from __future__ import annotations

from .. import op
from .. import passes as _t
from ..expr import Call, Function, Tuple, TupleGetItem, Var, children, post_order, with_children
from ..infer import infer_type
from ..op.registry import ELEMWISE
from ..op.tensor import BINARY, COMPARE
from ..ty import TupleType
from .simplify import CanonicalizeOps

__all__ = ["ConvertLayout"]

_KERNEL = {
    "nn.conv1d": {"NCW": "OIW", "NWC": "WIO"},
    "nn.conv2d": {"NCHW": "OIHW", "NHWC": "HWIO", "HWNC": "HWOI"},
    "nn.conv3d": {"NCDHW": "OIDHW", "NDHWC": "DHWIO"},
    "nn.conv2d_transpose": {"NCHW": "IOHW", "NHWC": "HWIO"},
}
_FOLLOW_LAYOUT = {
    "nn.upsampling",
    "image.resize2d",
    "nn.depth_to_space",
    "nn.space_to_depth",
    *(
        f"nn.{k}_pool{d}d"
        for k in ("max", "avg", "adaptive_max", "adaptive_avg", "global_max", "global_avg")
        for d in (1, 2, 3)
    ),
}
_AXIS = {
    "nn.bias_add",
    "nn.prelu",
    "nn.batch_norm",
    "nn.instance_norm",
    "nn.layer_norm",
    "nn.group_norm",
    "nn.lrn",
    "argsort",
    "cumsum",
}
_REDUCE = {"sum", "mean", "max", "min", "prod", "all", "any", "argmax", "argmin"}
_BROADCAST = {*BINARY, *COMPARE}


class _Converter:
    def __init__(self, desired):
        self.desired = desired
        self.new, self.state, self.done = (
            {},
            {},
            {},
        )  # by id of the old node: expression, (old, new) layout or None, transforms

    # ---- values in a wanted layout ----
    def to(self, e, want):
        """The new expression of old node `e` in layout `want` = (old letters, new letters), or as it was (None)."""
        have = self.state[id(e)]
        if have == want:
            return self.new[id(e)]
        key = id(e), want
        if key not in self.done:
            x, t = self.new[id(e)], e.checked_type
            if isinstance(t, TupleType):  # it wants nothing new: only an operator's several results have a layout
                fields = [(TupleGetItem(x, i), self.of_field(e, i)) for i in range(len(t.fields))]
                x = Tuple([op.layout_transform(f, s[1], s[0]) if s else f for f, s in fields])
            else:
                if have is not None:
                    x = op.layout_transform(x, have[1], have[0])
                if want is not None:
                    x = op.layout_transform(x, *want)
            self.done[key] = x
        return self.done[key]

    def of_field(self, e, index):
        """The layout of one of several results: of a batch norm only the first one is a map."""
        return self.state[id(e)] if index == 0 or e.op_name == "nn.dropout" else None

    def set(self, e, new, state):
        self.new[id(e)] = new
        self.state[id(e)] = state if state and state[0] != state[1] else None

    # ---- rules ----
    def conv(self, e):
        want = self.desired.get(e.op_name)
        a = e.attrs
        if not want:
            return False
        layout, kernel = want[0], want[1] if len(want) > 1 else "default"
        if layout == "default":
            raise ValueError(f"ConvertLayout: the data layout of {e.op_name} must be named, not 'default'")
        if sorted(layout) != sorted(a.data_layout):
            raise ValueError(f"ConvertLayout: {e.op_name} cannot go from {a.data_layout} to {layout}")
        if kernel == "default":
            if layout not in _KERNEL[e.op_name]:
                raise ValueError(f"ConvertLayout: name the kernel layout for {e.op_name} in {layout}")
            kernel = _KERNEL[e.op_name][layout]
            if layout == "NHWC" and e.op_name == "nn.conv2d" and self.depthwise(e):
                kernel = "HWOI"
        data = self.to(e.args[0], (a.data_layout, layout) if a.data_layout != layout else None)
        weight = self.to(e.args[1], None)
        if kernel != a.kernel_layout:
            weight = op.layout_transform(weight, a.kernel_layout, kernel)
        attrs = a.with_(data_layout=layout, kernel_layout=kernel, out_layout="")
        self.set(e, Call(e.op, (data, weight), attrs, None, e.span), (a.out_layout or a.data_layout, layout))
        return True

    @staticmethod
    def depthwise(e):
        a, w = e.attrs, e.args[1].checked_type.shape
        c = e.args[0].checked_type.shape[a.data_layout.index("C")]
        return a.groups > 1 and a.groups == c == w[a.kernel_layout.index("O")]

    def layout_op(self, e):
        a = e.attrs
        want = self.desired.get(e.op_name)
        state = (a.layout, want[0]) if want else self.state[id(e.args[0])]
        if state is None or state[0] != a.layout:
            return False
        args = [self.to(e.args[0], state if state[0] != state[1] else None), *(self.to(x, None) for x in e.args[1:])]
        attrs, out = a.with_(layout=state[1]), a.get("out_layout") or a.layout
        if "out_layout" in a:
            attrs = attrs.with_(out_layout="")
        self.set(e, Call(e.op, args, attrs, None, e.span), (out, state[1]))
        return True

    def broadcast(self, e):
        states = [self.state[id(x)] for x in e.args]
        ranks = [len(x.checked_type.shape) for x in e.args]
        rank = max(ranks)
        state = next((s for s, r in zip(states, ranks) if s and r == rank), None)
        if state is None:
            return False
        args = []
        for x, s, r in zip(e.args, states, ranks):
            shape = x.checked_type.shape
            if r == rank:
                args.append(self.to(x, state) if s or any(d != 1 for d in shape) else self.new[id(x)])
            elif all(d == 1 for d in shape):
                args.append(self.to(x, None))
            else:
                args.append(op.layout_transform(op.expand_dims(self.to(x, None), 0, rank - r), *state))
        self.set(e, with_children(e, args), state)
        return True

    def axis_op(self, e):
        state = self.state[id(e.args[0])]
        if state is None or e.attrs.axis is None:
            return False
        axis = state[1].index(state[0][e.attrs.axis % len(state[0])])
        args = [self.new[id(e.args[0])], *(self.to(x, None) for x in e.args[1:])]
        self.set(e, Call(e.op, args, e.attrs.with_(axis=axis), None, e.span), state)
        return True

    def reduce(self, e):
        state = self.state[id(e.args[0])]
        if state is None or len(e.args) != 1:
            return False
        old, new = state
        axes = op.reduce.real_axes(e.attrs, len(old))
        letters = {old[k] for k in axes}
        if e.op_name in ("argmax", "argmin") and len(axes) > 1:
            return False
        left = tuple("".join(c for c in s if c not in letters) for s in state)
        if not e.attrs.keepdims and left[0] != left[1]:
            return False
        attrs = e.attrs.with_(axis=tuple(k for k, c in enumerate(new) if c in letters), exclude=False)
        self.set(e, Call(e.op, (self.new[id(e.args[0])],), attrs, None, e.span), state if e.attrs.keepdims else None)
        return True

    def concatenate(self, e):
        fields = e.args[0].fields if isinstance(e.args[0], Tuple) else ()
        state = next((self.state[id(f)] for f in fields if self.state[id(f)]), None)
        if state is None:
            return False
        axis = state[1].index(state[0][e.attrs.axis % len(state[0])])
        joined = Tuple([self.to(f, state) for f in fields])
        self.set(e, Call(e.op, (joined,), e.attrs.with_(axis=axis), None, e.span), state)
        return True

    def pad(self, e):
        state = self.state[id(e.args[0])]
        if state is None:
            return False
        width = tuple(e.attrs.pad_width[state[0].index(c)] for c in state[1])
        args = [self.new[id(e.args[0])], *(self.to(x, None) for x in e.args[1:])]
        self.set(e, Call(e.op, args, e.attrs.with_(pad_width=width), None, e.span), state)
        return True

    def follow(self, e):
        state = self.state[id(e.args[0])] if e.args else None
        if state is None or len(e.args) != 1:
            return False
        self.set(e, with_children(e, (self.new[id(e.args[0])],)), state)
        return True

    def rule(self, e):
        name = e.op_name
        if name in _KERNEL:
            return self.conv
        if name in _FOLLOW_LAYOUT:
            return self.layout_op
        if name in _BROADCAST:
            return self.broadcast
        if name in _AXIS:
            return self.axis_op
        if name in _REDUCE:
            return self.reduce
        if name == "concatenate":
            return self.concatenate
        if name in ("nn.pad", "nn.mirror_pad"):
            return self.pad
        if name == "nn.dropout" or e.op.pattern == ELEMWISE:
            return self.follow
        return None

    def visit(self, e):
        if isinstance(e, Call) and e.op_name:
            rule = self.rule(e)
            if rule is not None and rule(e):
                return
        elif isinstance(e, TupleGetItem) and self.state[id(e.tuple_value)]:
            state = self.of_field(e.tuple_value, e.index)
            self.set(e, with_children(e, (self.new[id(e.tuple_value)],)), state)
            return
        elif isinstance(e, Var):
            self.set(e, e, None)
            return
        self.set(e, with_children(e, [self.to(c, None) for c in children(e)]), None)


def ConvertLayout(desired_layouts):
    """The pass. `desired_layouts`: operator name -> [data layout, kernel layout] (pools: [layout]), for example
    ``{"nn.conv2d": ["NHWC", "default"]}``."""
    for name, want in desired_layouts.items():
        op.get(name)
        if isinstance(want, str) or not want:
            raise ValueError(f"ConvertLayout: {name} needs a list such as ['NHWC', 'default'], not {want!r}")

    @_t.function_pass(opt_level=3, name="ConvertLayout")
    def run(func, mod, ctx):
        infer_type(func)
        func = CanonicalizeOps()(func)
        infer_type(func)
        if any(isinstance(e, Function) for e in post_order(func.body)):
            return func
        c = _Converter(desired_layouts)
        for e in post_order(func.body):
            c.visit(e)
        return Function(func.params, c.to(func.body, None), None, func.type_params, func.attrs, func.span)

    return run
