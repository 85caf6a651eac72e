"""The operator table: all that is known of an operator stands in one entry.

That is a name, a fusion class, a type rule, its definition as loops or the operators that it is taken apart into, how it follows its
data into another layout, whether it may be computed in 16-bit floats, and (where it is cheap) a NumPy evaluation used by constant
folding. Schedules without tuning are made of the loops, whatever the operator.
"""

from __future__ import annotations

from ... import check
from ...tir import PrimExpr
from ..dims import as_dim
from ..expr import Call, Constant, Expr, Tuple, TupleWrapper, above, const
from ..ty import Any, TensorType
from . import layout as layouts

__all__ = ["Op", "get", "register", "call", "ELEMWISE", "BROADCAST", "INJECTIVE", "REDUCE", "ANCHOR", "TUPLE", "OPAQUE",
           "ALWAYS", "FOLLOW", "NEVER"]  # fmt: skip

# Fusion classes, in the order in which they combine.
ELEMWISE, BROADCAST, INJECTIVE, REDUCE, ANCHOR, TUPLE, OPAQUE = 0, 1, 2, 3, 4, 7, 8
# Colours for mixed precision: worth 16-bit floats; as its arguments are; only in the type that the network has.
ALWAYS, FOLLOW, NEVER = "always", "follow", "never"
_TABLE: dict[str, Op] = {}


class Op:
    """An operator: `name`, `pattern` (fusion class), ``infer(attrs, types) -> type``, ``evaluate(attrs, *arrays)``,
    `layout` (a rule of :mod:`.layout`, None: it needs its arguments as the network has them), `colour`,
    ``loops(attrs, inputs, call, target)`` (its definition: tensors of :mod:`nestsmith.topi` from tensors, lists of them for tuples) or
    ``apart(call)`` (the operators that it consists of), and `ranked`: whether the axes of its result are known to be those of a
    feature map (None: if those of an argument are), so that a vector per channel which meets it gets its rank."""

    __slots__ = ("name", "pattern", "infer", "evaluate", "stateful", "layout", "colour", "loops", "apart", "ranked", "given")

    def __init__(self, name, pattern, infer, evaluate, stateful, layout, colour, loops, apart, ranked):
        self.name, self.pattern, self.infer, self.evaluate, self.stateful = name, pattern, infer, evaluate, stateful
        self.layout, self.colour, self.loops, self.apart, self.ranked = layout, colour, loops, apart, ranked
        self.given: dict = {}  # attributes that users gave it: see :mod:`.op`

    def __call__(self, *args, **attrs):
        return Call(self, args, attrs)

    def __repr__(self):
        return f"Op({self.name})"

    def __reduce__(self):
        return get, (self.name,)

    def astext(self, show_meta_data=True, annotate=None):
        """Its name, as the text of an expression."""
        return above.astext(self, show_meta_data, annotate)

    @staticmethod
    def get(op_name):
        """The operator of that name; ValueError if there is none."""
        return get(op_name)

    @staticmethod
    def list_op_names():
        """Names of all operators, sorted."""
        return names()

    def get_attr(self, attr_name):
        """An attribute (``"TOpPattern"``, ``"FTVMLegalize"``, one of the user's own), or None."""
        if attr_name == "TOpPattern" and attr_name not in self.given:
            return self.pattern
        if attr_name == "TOpIsStateful" and attr_name not in self.given:
            return self.stateful
        return self.given.get(attr_name)

    def has_attr(self, attr_name):
        """Whether there is an attribute of that name."""
        return self.get_attr(attr_name) is not None

    def set_attr(self, attr_name, value, plevel=10):
        """Gives the operator an attribute; `plevel` is accepted, the last one counts."""
        self.given[attr_name] = value
        if attr_name == "TOpPattern":
            self.pattern = int(value)
        if attr_name == "TOpIsStateful":
            self.stateful = bool(value)
        if attr_name == "FTVMCompute":
            self.loops = lambda attrs, inputs, call, target: _outputs(value(attrs, inputs, call.checked_type))

    def reset_attr(self, attr_name):
        """Takes an attribute away; what the package itself knows of the operator stays."""
        self.given.pop(attr_name, None)

    @property
    def num_inputs(self):
        """How many arguments it takes; -1 if that is not said."""
        return self.given.get("num_inputs", 2 if self.pattern == BROADCAST else 1 if self.pattern == ELEMWISE else -1)

    @property
    def support_level(self):
        """How basic it is: 1 (arithmetic and the first layers) to 10."""
        return self.given.get("support_level", next((level for level, known in _LEVELS.items() if self.name in known), 10))

    description = property(lambda self: self.given.get("description", ""), doc="What it does, as it was registered.")

    @property
    def arguments(self):
        """(name, type, description) of its arguments, as they were added."""
        return self.given.get("arguments", [])

    def set_num_inputs(self, n):
        self.given["num_inputs"] = int(n)

    def set_support_level(self, level):
        self.given["support_level"] = int(level)

    def add_argument(self, name, type, description):
        self.given.setdefault("arguments", []).append((name, type, description))

    def add_type_rel(self, rel_name, type_rel_func=None):
        """Its type: ``"Identity"`` (that of the first argument), ``"Broadcast"`` (as NumPy's), or ``type_rel_func(arg_types, attrs)``."""
        if type_rel_func is not None:
            self.infer = lambda attrs, types: type_rel_func(types, attrs)
        elif rel_name in _RELATIONS:
            self.infer = _RELATIONS[rel_name]
        else:
            raise ValueError(f"there is no type relation {rel_name!r}; give type_rel_func, or one of {', '.join(_RELATIONS)}")

    def set_attrs_type_key(self, key):
        self.given["attrs_type_key"] = str(key)


def _outputs(made):
    made = list(made) if isinstance(made, (list, tuple)) else [made]
    return made[0] if len(made) == 1 else made


def _broadcast(attrs, types):
    shapes = [tensor(types, i).shape for i in range(2)]
    rank = max(map(len, shapes))
    full = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return TensorType([b if a == 1 else a for a, b in zip(*full)], tensor(types, 0).dtype)


_RELATIONS = {"Identity": lambda attrs, types: tensor(types, 0), "Broadcast": _broadcast}
_LEVELS = {
    1: "log log2 log10 exp sqrt rsqrt sigmoid tanh sin cos tan sinh cosh asin acos atan asinh acosh atanh erf add subtract multiply divide "
    "floor_divide trunc_divide mod floor_mod trunc_mod nn.softmax nn.log_softmax nn.relu nn.dropout nn.batch_norm nn.bias_add concatenate "
    "expand_dims nn.dense nn.matmul nn.lrn nn.layer_norm nn.instance_norm nn.group_norm".split(),
    2: "nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose nn.max_pool1d nn.max_pool2d nn.max_pool3d "
    "nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.global_max_pool2d nn.global_avg_pool2d nn.upsampling nn.upsampling3d nn.batch_flatten "
    "nn.pad nn.mirror_pad nn.l2_normalize".split(),
    3: "ceil floor trunc round abs sign negative logical_not bitwise_not reshape reshape_like copy transpose squeeze take full full_like "
    "zeros zeros_like ones ones_like clip cast reinterpret split arange meshgrid stack repeat tile reverse reverse_sequence cumsum cumprod "
    "unravel_index sparse_to_dense fixed_point_multiply isnan isinf isfinite nn.leaky_relu nn.prelu".split(),
    4: "right_shift left_shift equal not_equal greater greater_equal less less_equal all any logical_and logical_or logical_xor maximum "
    "minimum power argmax argmin sum max min mean prod variance strided_slice broadcast_to where".split(),
    5: "image.resize1d image.resize2d image.resize3d image.crop_and_resize image.dilation2d vision.multibox_prior vision.nms".split(),
    6: "topk sort argsort searchsorted".split(),
}  # fmt: skip


def register_custom(name, describe=""):
    """A new operator that has a name and a description only: see :func:`nestsmith.relay.op.op.register`."""

    def infer(attrs, types):
        raise ValueError("the operator has no type relation: add one with add_type_rel")

    op = register(name, OPAQUE, infer)
    op.given["description"] = describe
    return op


def register(name, pattern, infer, evaluate=None, stateful=False, layout=None, colour=None, loops=None, apart=None,
             ranked=None):  # fmt: skip
    """Add an operator to the table and return it. What is computed element by element follows its data into any layout;
    operators up to the class INJECTIVE are computed in the type of their arguments."""
    if name in _TABLE:
        raise ValueError(f"operator {name!r} is already registered")
    if pattern == ELEMWISE and layout is None:
        layout = layouts.follow
    if pattern <= INJECTIVE and colour is None:
        colour = FOLLOW
    op = _TABLE[name] = Op(name, pattern, infer, evaluate, stateful, layout, colour, loops, apart, ranked)
    return op


def get(name):
    """The operator called `name`, e.g. ``"nn.conv2d"``; ValueError with the nearest names if there is none."""
    op = _TABLE.get(name)
    if op is None:
        raise ValueError(f"there is no operator {name!r}{check.did_you_mean(name, _TABLE, 3)}")
    return op


def names():
    """Names of all operators, sorted."""
    return sorted(_TABLE)


def call(name, args, **attrs):
    """A call of the operator `name`."""
    return Call(get(name), [a.astuple() if isinstance(a, TupleWrapper) else a for a in args], attrs)


def as_expr(x):
    """`x` as an expression: tuples of results unwrap, lists become tuples."""
    if isinstance(x, TupleWrapper):
        return x.astuple()
    if isinstance(x, (list, tuple)):
        return Tuple([as_expr(f) for f in x])
    return x if isinstance(x, Expr) else const(x)


def tensor(types, i):
    """The type of argument i, which must be a known tensor type."""
    t = types[i]
    if not isinstance(t, TensorType):
        raise ValueError(f"argument {i} must be a tensor")
    return t


def norm_axis(axis, rank, what="axis"):
    """`axis` counted from the front; ValueError if it is out of range."""
    axis = int(axis)
    if not -rank <= axis < rank:
        raise ValueError(f"{what} {axis} is out of range for rank {rank}")
    return axis % rank


def ints(v):
    """A number, a constant or some numbers as a tuple; sizes with a name stay."""
    if isinstance(v, Constant):
        v = v.data.tolist()
    if isinstance(v, int):
        return (v,)
    return tuple(as_dim(x) if isinstance(x, (Any, PrimExpr)) else int(x) for x in v)
