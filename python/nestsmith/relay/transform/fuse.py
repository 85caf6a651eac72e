"""FuseOps: groups operators into primitive functions, one kernel each.

The graph of a function is indexed in post-order. Each node gets its immediate post-dominator and the largest class
met on the
way to it. Three phases then merge a node with everything up to its post-dominator when the classes allow it: first
anchors
(convolutions, pools) with the element-wise operators that follow, then injective operators, then injective producers
of tuples. Finally every group becomes a function called with the group's external inputs.
"""

import math
from functools import partial

from .. import expr as rx, passes
from ..infer import infer_type
from ..op.registry import ANCHOR, BROADCAST, ELEMWISE, INJECTIVE, OPAQUE, REDUCE, TUPLE
from ..ty import TensorType
from .alter_layout import is_in_tiles
from .expansions import brings_image, expanded_by, is_pointwise, reads_image
from .moves import PRODUCTS, is_move, static_shape

__all__ = ["FuseOps", "DefuseOps"]

_SCALARS = ("int32", "int64", "float32", "float64", "bool")
_RESHAPES = {"reshape", "squeeze", "expand_dims", "nn.batch_flatten", "contrib_reverse_reshape"}


class _Node:
    """A node of the indexed graph; also its entry of the dominator tree and its group (union-find)."""

    __slots__ = ("index", "expr", "pattern", "extern", "users", "parent", "depth", "dom", "up", "gpattern", "anchor",
                 "count")  # fmt: skip

    def __init__(self, index, expr):
        self.index, self.expr, self.pattern, self.extern, self.users = index, expr, OPAQUE, False, []
        self.parent, self.depth, self.dom = None, 1, OPAQUE  # post-dominator, depth, class of the way there
        self.up, self.gpattern, self.anchor, self.count = None, OPAQUE, False, 1

    def root(self):
        n = self
        while n.up is not None:
            n = n.up
        m = self
        while m.up is not None:
            m.up, m = n, m.up
        return n


def _pattern(call):
    if not call.op_name:
        return OPAQUE
    t = call.checked_type
    if isinstance(t, TensorType) and not t.is_static and call.op_name in ("strided_slice", "reshape"):
        return OPAQUE
    return call.op.pattern


def _index(body, params):
    nodes, order = {}, []
    for e in rx.post_order(body):
        n = nodes[id(e)] = _Node(len(order), e)
        order.append(n)

    def extern(e):
        if id(e) in nodes:
            nodes[id(e)].extern = True

    extern(body)
    for p in params:
        extern(p)
    for n in order:
        e = n.expr
        if isinstance(e, rx.Call):
            n.pattern = _pattern(e)
            if not e.op_name:
                extern(e.op)
            rt = e.checked_type
            for a in e.args:
                edge, at = n.pattern, a.checked_type
                if (edge == BROADCAST and isinstance(at, TensorType) and isinstance(rt, TensorType)
                    and at.shape == rt.shape):  # fmt: skip
                    edge = ELEMWISE
                nodes[id(a)].users.append((n, edge))
        elif isinstance(e, rx.Tuple):
            n.pattern = TUPLE
            for f in e.fields:
                if isinstance(f.checked_type, TensorType):
                    nodes[id(f)].users.append((n, INJECTIVE))
                else:
                    extern(f)
        elif isinstance(e, rx.TupleGetItem):
            if all(isinstance(t, TensorType) for t in e.tuple_value.checked_type.fields):
                n.pattern = INJECTIVE
                nodes[id(e.tuple_value)].users.append((n, INJECTIVE))
            else:
                extern(e.tuple_value)
        elif isinstance(e, rx.Constant):
            n.pattern = ELEMWISE if e.is_scalar and e.checked_type.dtype in _SCALARS else OPAQUE
        elif isinstance(e, (rx.Let, rx.If, rx.Function)):
            for c in rx.children(e):
                extern(c)
    return order, nodes


def _lca(a, b, cls):
    while a is not b:
        if a is None or b is None:
            return None, cls
        if a.depth < b.depth:
            cls, b = max(cls, b.dom), b.parent
        elif b.depth < a.depth:
            cls, a = max(cls, a.dom), a.parent
        else:
            cls, a, b = max(cls, a.dom, b.dom), a.parent, b.parent
    return a, cls


def _post_dominate(order):
    for n in reversed(order):
        n.gpattern, n.anchor = n.pattern, n.pattern == ANCHOR
        if n.extern:
            continue
        p, cls = None, ELEMWISE
        for k, (u, edge) in enumerate(n.users):
            if k == 0:
                p = u
            else:
                p, cls = _lca(p, u, cls)
            cls = max(cls, edge)
        n.parent, n.dom = p, cls
        n.depth = p.depth + 1 if p else 1


def _path_ok(src, sink, cond):
    met = rx.reach((u for u, _ in src.users), lambda n: () if n is sink else [u for u, _ in n.users])
    return all(cond(n.root().gpattern, n is sink) for n in met)


def _between(src, sink):
    """src and every node on a way from it to sink, sink excluded."""
    return list(rx.reach([src], lambda n: [u for u, _ in n.users if u is not sink]))


def _merge(src, sink):
    for n in _between(src, sink):
        child, target = n.root(), sink.root()
        if child is target:
            continue
        target.count += child.count
        child.up = target
        if child.anchor:
            target.anchor = True
            target.gpattern = max(child.gpattern, target.gpattern)


def _any_injective(kind, is_sink):
    return kind <= INJECTIVE


def _only_broadcast(kind, is_sink):
    return kind <= BROADCAST


def _into_master(kind, is_sink):
    return kind <= ANCHOR if is_sink else kind <= INJECTIVE


def _scales(e):
    if not isinstance(e, rx.Call) or e.op_name != "multiply":
        return False
    return isinstance(e.args[1], rx.Constant) and e.args[1].is_scalar


def _rounds(e):
    return isinstance(e, rx.Call) and e.op_name == "round_tf32"


def _moves_into_product(n, nodes):
    """Whether the group of a node consists of moves, and factors for all elements with what rounds them, and a product of matrices reads
    them. Reshapes alone are no kernel anyway."""
    master = n.parent.expr
    if not isinstance(master, rx.Call) or master.op_name not in PRODUCTS or not _path_ok(n, n.parent, _into_master):
        return False
    e, costs = n.expr, False
    while is_move(e) or _scales(e) or _rounds(e):
        costs |= e.op_name not in _RESHAPES
        e = e.args[0]
        if nodes[id(e)].root() is not n.root():
            return costs
    return False


def _expansion(n, nodes):
    """Whether the group of a node is an expansion that one depthwise convolution reads, which has a bias or an activation: the
    sketch is for a kernel with something after the windows."""
    if n.root() is not n or n.parent.root() is n.parent or any(u is not n.parent for u, _ in n.users):
        return False
    return expanded_by(n.expr, n.parent.expr, lambda a, b: nodes[id(a)].root() is nodes[id(b)].root()) is not None


def _first_layout(n, nodes, most=3):
    """Whether a node brings an image, an input of the network, into the layout of the one convolution that reads it. That takes it element
    by element anyway. It reads each several times: what is computed on the way would be as often. `most`: taps along a side."""
    e, p = n.expr, n.parent.expr
    if not brings_image(e) or n.root() is not n or any(u is not n.parent for u, _ in n.users):
        return False
    return isinstance(p, rx.Call) and p.args[0] is e and reads_image(p, most) and _path_ok(n, n.parent, _into_master)


def _gate(n, nodes):
    """Whether a node multiplies each channel of an image by a number, as squeeze-and-excitation does, and one 1x1 convolution reads it:
    that reads a value for many channels of its own at a time, so the product is computed a few times and not written."""
    e, p = n.expr, n.parent.expr
    if not isinstance(e, rx.Call) or e.op_name != "multiply":
        return False
    if n.root() is not n or any(u is not n.parent for u, _ in n.users):
        return False
    if not isinstance(p, rx.Call) or p.op_name != "nn.conv2d" or p.args[0] is not e or not is_pointwise(p):
        return False
    shape, gates = static_shape(e), [static_shape(a) for a in e.args if not isinstance(a, rx.Constant)]
    return shape is not None and shape[1:3] != (1, 1) and (shape[0], 1, 1, shape[3]) in gates and _path_ok(n, n.parent, _into_master)


def _windows_side_by_side(call):
    """Whether a call is the greatest of each two by two pixels (NHWC), none left out."""
    if not isinstance(call, rx.Call) or call.op_name != "nn.max_pool2d" or static_shape(call.args[0]) is None:
        return False
    a, sides = call.attrs, static_shape(call.args[0])[1:3]
    plain = a.layout == "NHWC" and not any(map(int, a.padding)) and tuple(a.dilation) == (1, 1)
    return plain and tuple(a.pool_size) == tuple(a.strides) == (2, 2) and all(s % 2 == 0 for s in sides)


def _pool(n, nodes, in_tiles):
    """Whether a pool is all that reads the group of a node, whose convolution is computed in Winograd's tiles: what makes a tile has whole
    windows of it."""
    if n.root() is not n or n.parent.root() is not n.parent or any(u is not n.parent for u, _ in n.users):
        return False
    p, e = n.parent.expr, n.expr
    if not _windows_side_by_side(p) or p.args[0] is not e:
        return False
    after = ("nn.relu", "add", "nn.bias_add")
    while isinstance(e, rx.Call) and e.op_name in after and nodes[id(e.args[0])].root() is n:
        e = e.args[0]
    return isinstance(e, rx.Call) and in_tiles(e)


# What an operator takes in that TVM leaves apart, by the setting relay.FuseOps.* that asks for it.
_TAKES = {
    "into_products": _moves_into_product, "expansions": _expansion, "first_layout": _first_layout,
    "any_first_layout": partial(_first_layout, most=math.inf), "gates": _gate, "pools": _pool,
}  # fmt: skip


def _try(n, phase, max_depth, takes=()):
    if n.gpattern == OPAQUE or n.parent is None:
        return
    p = n.parent
    if p.root().count + sum(m.count for m in _between(n, p)) > max_depth:
        return
    if phase == 2:
        root = p.root()
        if (n.gpattern <= INJECTIVE and root.gpattern <= INJECTIVE and p.gpattern == TUPLE
            and _path_ok(n, p, _any_injective)):  # fmt: skip
            _merge(n, p)
        return
    if n.root() is p.root() or p.gpattern == TUPLE:
        return
    if phase == 1 and any(rule(n) for rule in takes):
        return _merge(n, p)
    if n.gpattern == ANCHOR:
        if phase == 0 and n.dom == ELEMWISE and _path_ok(n, p, _only_broadcast):
            _merge(n, p)
    elif n.gpattern <= BROADCAST:
        if (n.dom <= INJECTIVE or n.dom == REDUCE) and _path_ok(n, p, _into_master):
            _merge(n, p)
    elif n.gpattern in (INJECTIVE, TUPLE):
        if phase == 1 and _path_ok(n, p, _any_injective):
            _merge(n, p)


class _Builder:
    """Turns groups into functions; `out` maps each original node to its expression in the new graph."""

    def __init__(self, nodes, link_params):
        self.nodes, self.link_params, self.out = nodes, link_params, {}

    def group(self, e):
        return self.nodes[id(e)].root()

    def make(self, e):
        """A call of the function made of the group whose last node is `e`."""
        group, memo, params, args, by_arg = self.group(e), {}, [], [], {}

        def outer(a):
            new = self.out[id(a)]
            if isinstance(new, rx.Constant) and self.link_params:
                return new
            if id(new) not in by_arg:
                by_arg[id(new)] = v = rx.Var(f"p{len(params)}", a.checked_type)
                params.append(v)
                args.append(new)
            return by_arg[id(new)]

        def inner(x):
            if id(x) not in memo:
                below = [inner(c) if self.group(c) is group else outer(c) for c in rx.children(x)]
                memo[id(x)] = rx.with_children(x, below)
            return memo[id(x)]

        body = inner(e)
        calls = [n for n in rx.post_order(body) if isinstance(n, rx.Call)]
        if not calls:
            return None
        attrs = {"Primitive": 1}
        if isinstance(body, rx.Call) and all(c.op_name in _RESHAPES for c in calls):
            attrs["reshape_only"] = 1
        f = rx.Function(params, body, attrs=attrs)
        return rx.Call(f, args, span=next((c.span for c in calls if c.span), None))

    def visit(self, n):
        e = n.expr
        if isinstance(e, (rx.Var, rx.Constant, rx.GlobalVar)):
            return e
        if isinstance(e, rx.Call) and e.op_name == "annotation.stop_fusion":  # has done its duty
            return self.out[id(e.args[0])]
        whole = n.root() is n  # the last node of its group
        if isinstance(e, rx.Call) and e.op_name:
            return self.make(e) if whole else None
        if isinstance(e, rx.TupleGetItem):
            if not whole:
                return None
            if self.group(e.tuple_value) is n.root():
                made = self.make(e)
                if made is not None:
                    return made
        if isinstance(e, rx.Tuple) and not whole:
            return None
        return rx.with_children(e, [self.out[id(c)] for c in rx.children(e)])


def fuse(func, opt_level, max_depth=256, link_params=False, takes=(), in_tiles=None):
    """`func` with its operators grouped into primitive functions; `takes` names what of `_TAKES` is done besides. `in_tiles`: says of a
    call whether it is a convolution in Winograd's tiles, for "pools"."""
    infer_type(func)
    order, nodes = _index(func.body, func.params)
    _post_dominate(order)
    rules = [partial(_TAKES[name], nodes=nodes, **({"in_tiles": in_tiles} if name == "pools" else {})) for name in takes]
    if opt_level > 0:
        for phase in range(3):
            for n in order:
                _try(n, phase, max_depth, rules)
    builder = _Builder(nodes, link_params)
    for n in order:
        builder.out[id(n.expr)] = builder.visit(n)
    return rx.Function(func.params, builder.out[id(func.body)], None, func.type_params, func.attrs, func.span)


def FuseOps(fuse_opt_level=-1, target=None):
    """The pass; `fuse_opt_level` overrides the context's level. `target`: for which convolutions are computed; without it
    `relay.FuseOps.pools` is not done."""

    @passes.function_pass(opt_level=0, name="FuseOps")
    def run(func, mod, ctx):
        level = fuse_opt_level if fuse_opt_level >= 0 else ctx.opt_level
        depth = int(ctx.config.get("relay.FuseOps.max_depth", 256))
        asked = [k for k in ("link_params", *_TAKES) if ctx.config.get(f"relay.FuseOps.{k}")]
        takes = [k for k in asked if k in _TAKES and (k != "pools" or target)]
        return fuse(func, level, depth, "link_params" in asked, takes, lambda call: is_in_tiles(call, target, ctx.config))

    return run


@passes.makes_function_pass(opt_level=0)
def DefuseOps(func, mod, ctx):
    """Inlines functions where they are called: the inverse of FuseOps."""
    def visit(old, new):
        if isinstance(new, rx.Call) and isinstance(new.op, rx.Function):
            table = {id(p): a for p, a in zip(new.op.params, new.args)}
            return rx.rewrite(new.op.body, lambda o, n: table.get(id(o), n))
        return new

    return infer_type(rx.rewrite(func, visit))
