"""A language of patterns of the graphs of calls: matching, rewriting and partitioning of expressions.

A pattern matches an expression if there is a choice (the order of the arguments of ``add`` and ``multiply``, an alternative) by which
every part of it is matched by one node. Matching is a search with backtracking over persistent assignments (pattern -> nodes).
Rewriting and partitioning group the nodes first: from the result down, and only where the inside of a group has no reader outside.
"""

import typing

from ..structure import first_difference
from . import expr as rx, structure as _rules  # noqa: F401  how networks are compared
from .op.op import get
from .op.registry import Op
from .ty import TensorType

__all__ = ["DFPattern", "ExprPattern", "VarPattern", "ConstantPattern", "CallPattern", "FunctionPattern", "IfPattern",
           "LetPattern", "TuplePattern", "TupleGetItemPattern", "AltPattern", "WildcardPattern", "TypePattern",
           "DataTypePattern", "ShapePattern", "AttrPattern", "DominatorPattern", "DFPatternCallback", "is_var",
           "is_constant", "is_expr", "is_op", "is_tuple", "is_tuple_get_item", "is_if", "is_let", "wildcard",
           "has_type", "has_dtype", "has_shape", "has_attr", "dominates", "match", "rewrite", "partition"]  # fmt: skip


class _Found(typing.NamedTuple):
    """An assignment: nodes by pattern, as a chain (pattern, node, what was found before)."""

    pattern: object
    node: object
    before: object

    @staticmethod
    def of(chain, pattern):
        while chain is not None:
            if chain.pattern is pattern:
                return chain.node
            chain = chain.before
        return None


def _nodes_of(chain):
    """{pattern: [nodes]}, in the order in which they were found."""
    out: dict = {}
    items = []
    while chain is not None:
        items.append(chain)
        chain = chain.before
    for c in reversed(items):
        nodes = out.setdefault(c.pattern, [])
        if not any(n is c.node for n in nodes):
            nodes.append(c.node)
    return out


class DFPattern:
    """Base class of patterns. Arithmetic and calls make patterns of calls; ``|`` makes an alternative."""

    def __call__(self, *args):
        return CallPattern(self, None if len(args) == 1 and args[0] is None else list(args))

    def __or__(self, other):
        return AltPattern(self, other)

    def optional(self, option_constructor):
        """This pattern, or what `option_constructor` makes of it."""
        return self | option_constructor(self)

    def dominates(self, parent, path=None):
        """As :func:`dominates`, this being the child."""
        return dominates(parent, path, self)

    def match(self, expr):
        """Whether the pattern matches an expression."""
        return match(self, expr)

    def partition(self, expr, attrs=None, check=lambda x: True):
        """As :func:`partition`."""
        return partition(self, expr, attrs, check)

    def parts(self):
        """The patterns that this one consists of, in order."""
        return ()

    def ways(self, e, found, keep):
        """The assignments by which the pattern matches a node, given one; `keep`: whether patterns keep the node that they matched."""
        if keep:
            known = _Found.of(found, self)
            if known is not None:
                if known is e:
                    yield found
                return
        for after in self.test(e, found, keep):
            yield _Found(self, e, after) if keep else after

    def test(self, e, found, keep):
        raise NotImplementedError


def _each(patterns, nodes, found, keep, i=0):
    """The assignments by which patterns match nodes one by one."""
    if len(patterns) != len(nodes):
        return
    if i == len(patterns):
        yield found
        return
    for after in patterns[i].ways(nodes[i], found, keep):
        yield from _each(patterns, nodes, after, keep, i + 1)


class ExprPattern(DFPattern):
    """An expression (or operator) of the same structure."""

    def __init__(self, expr):
        self.expr = expr

    def test(self, e, found, keep):
        if e is self.expr or (not isinstance(self.expr, Op) and not isinstance(e, Op) and first_difference(self.expr, e) is None):
            yield found


class VarPattern(DFPattern):
    """A variable, of this name if one is given."""

    def __init__(self, name_hint=""):
        self.name = name_hint

    def test(self, e, found, keep):
        if isinstance(e, rx.Var) and self.name in ("", e.name_hint):
            yield found


class ConstantPattern(DFPattern):
    """A constant."""

    def test(self, e, found, keep):
        if isinstance(e, rx.Constant):
            yield found


class WildcardPattern(DFPattern):
    """Anything."""

    redirected = None

    def redirect_to(self, pattern):
        """From now on this is `pattern`, which may contain it: patterns of repetitions."""
        self.redirected = pattern

    def test(self, e, found, keep):
        if self.redirected is None:
            yield found
        else:
            yield from self.redirected.again(e, found, keep)


def _again(self, e, found, keep):
    """A pattern within itself: matched anew, whatever it matched before."""
    for after in self.test(e, found, keep):
        yield _Found(self, e, after) if keep else after


DFPattern.again = _again  # type: ignore[attr-defined]


class CallPattern(DFPattern):
    """A call; `args` None: with any arguments. ``add`` and ``multiply`` may have theirs in either order, a product with a quotient may be
    written in either order of the two."""

    def __init__(self, op, args):
        self.op, self.args = op, None if args is None else list(args)

    def parts(self):
        return (self.op, *(self.args or ()))

    def _is(self, name):
        return isinstance(self.op, ExprPattern) and getattr(self.op.expr, "name", None) == name and len(self.args or ()) == 2

    def test(self, e, found, keep):
        if not isinstance(e, rx.Call):
            return
        for after in self.op.ways(e.op, found, keep):
            if self.args is None:
                yield after
                return
            yield from _each(self.args, e.args, after, keep)
            if self._is("add") or self._is("multiply"):
                yield from _each(self.args, e.args[::-1], after, keep)
        for other in self._regrouped(e):
            yield from other.test(e, found, keep)

    def _regrouped(self, e):
        """a * b / c as a * (b / c) and as (a / c) * b, and the other way round, if that is how the expression is written."""
        def is_op_of(x, name):
            return isinstance(x, rx.Call) and x.op_name == name

        if self._is("divide") and is_op_of(e, "multiply") and any(is_op_of(a, "divide") for a in e.args):
            product = self.args[0]
            if isinstance(product, CallPattern) and product._is("multiply"):
                for a, b in (product.args, product.args[::-1]):
                    yield CallPattern(product.op, [b, CallPattern(self.op, [a, self.args[1]])])
        if self._is("multiply") and is_op_of(e, "divide") and is_op_of(e.args[0], "multiply"):
            for quotient, other in (self.args, self.args[::-1]):
                if isinstance(quotient, CallPattern) and quotient._is("divide"):
                    yield CallPattern(quotient.op, [CallPattern(self.op, [quotient.args[0], other]), quotient.args[1]])


class FunctionPattern(DFPattern):
    """A function; `params` None: with any parameters."""

    def __init__(self, params, body):
        self.params, self.body = None if params is None else list(params), body

    def parts(self):
        return (*(self.params or ()), self.body)

    def test(self, e, found, keep):
        if isinstance(e, rx.Function):
            given = [(found)] if self.params is None else _each(self.params, e.params, found, keep)
            for after in given:
                yield from self.body.ways(e.body, after, keep)


class _Parts(DFPattern):
    """A node of the class `of` whose fields match patterns."""

    of: typing.Any = None
    fields: tuple = ()

    def __init__(self, *patterns, **named):
        self.__dict__.update(dict(zip(self.fields, patterns), **named))

    def parts(self):
        return tuple(getattr(self, f) for f in self.fields)

    def test(self, e, found, keep):
        if isinstance(e, self.of):
            yield from _each(self.parts(), [getattr(e, f) for f in self.fields], found, keep)


class IfPattern(_Parts):
    """An if: ``IfPattern(cond, true_branch, false_branch)``."""

    of, fields = rx.If, ("cond", "true_branch", "false_branch")


class LetPattern(_Parts):
    """A let: ``LetPattern(var, value, body)``."""

    of, fields = rx.Let, ("var", "value", "body")


class TuplePattern(DFPattern):
    """A tuple; `fields` None: of any fields."""

    def __init__(self, fields):
        self.fields = None if fields is None else list(fields)

    def parts(self):
        return tuple(self.fields or ())

    def test(self, e, found, keep):
        if isinstance(e, rx.Tuple):
            if self.fields is None:
                yield found
            else:
                yield from _each(self.fields, e.fields, found, keep)


class TupleGetItemPattern(DFPattern):
    """A field of a tuple; `index` None: any."""

    def __init__(self, tuple_value, index=None):
        self.tuple, self.index = tuple_value, -1 if index is None else index

    def parts(self):
        return (self.tuple,)

    def test(self, e, found, keep):
        if isinstance(e, rx.TupleGetItem) and self.index in (-1, e.index):
            yield from self.tuple.ways(e.tuple_value, found, keep)


class AltPattern(DFPattern):
    """One of two patterns."""

    def __init__(self, left, right):
        self.left, self.right = left, right

    def parts(self):
        return self.left, self.right

    def test(self, e, found, keep):
        yield from self.left.ways(e, found, keep)
        yield from self.right.ways(e, found, keep)


class _Filter(DFPattern):
    """A pattern with a condition on the node."""

    def __init__(self, pattern):
        self.pattern = pattern

    def parts(self):
        return (self.pattern,)

    def test(self, e, found, keep):
        if self.holds(e):
            yield from self.pattern.ways(e, found, keep)

    def holds(self, e):
        raise NotImplementedError


def _type_of(e):
    """The type of an expression, None where it cannot be inferred."""
    try:
        return e.checked_type if isinstance(e, rx.Expr) else None
    except ValueError:
        return None


class TypePattern(_Filter):
    """A pattern of this type."""

    def __init__(self, pattern, ttype):
        super().__init__(pattern)
        self.type = ttype

    def holds(self, e):
        t = _type_of(e)
        return t is not None and first_difference(t, self.type) is None


class DataTypePattern(_Filter):
    """A pattern of this element type."""

    def __init__(self, pattern, dtype):
        super().__init__(pattern)
        self.dtype = dtype

    def holds(self, e):
        t = _type_of(e)
        return isinstance(t, TensorType) and t.dtype == self.dtype


class ShapePattern(_Filter):
    """A pattern of this shape."""

    def __init__(self, pattern, shape):
        super().__init__(pattern)
        self.shape = list(shape)

    def holds(self, e):
        t = _type_of(e)
        return isinstance(t, TensorType) and len(t.shape) == len(self.shape) and all(a == b for a, b in zip(t.shape, self.shape))


def _same_value(a, b):
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same_value, a, b))
    return a == b


class AttrPattern(_Filter):
    """A pattern with these attributes: of a call, a function or an operator (``TOpPattern``, ...)."""

    def __init__(self, pattern, attrs):
        super().__init__(pattern)
        self.attrs = dict(attrs)

    def holds(self, e):
        read = e.get_attr if isinstance(e, Op) else getattr(getattr(e, "attrs", None), "get", None)
        if read is None:
            return False
        return all(read(k) is not None and _same_value(read(k), v) for k, v in self.attrs.items())


class DominatorPattern(DFPattern):
    """A child all of whose inputs come, by ways whose nodes match `path`, from one node that matches `parent`."""

    def __init__(self, parent, path, child):
        self.parent, self.path, self.child = parent, path, child

    def parts(self):
        return self.child, self.path, self.parent

    def test(self, e, found, keep):
        for after in self.child.ways(e, found, keep):
            yield from self.ways_up(_inputs(e), 0, after)

    def ways_up(self, nodes, i, found):
        if i == len(nodes):
            if _Found.of(found, self.parent) is not None:
                yield found
            return
        for after in self.parent.ways(nodes[i], found, True):
            yield from self.ways_up(nodes, i + 1, after)
        below = _inputs(nodes[i])
        if below and any(True for _ in self.path.ways(nodes[i], found, False)):
            for after in self.ways_up(below, 0, _Found(self.path, nodes[i], found)):
                yield from self.ways_up(nodes, i + 1, after)


def _inputs(e):
    """The nodes that a node reads, without the function that it calls."""
    if isinstance(e, rx.Call):
        return e.args
    return rx.children(e) if isinstance(e, rx.Expr) and not isinstance(e, rx.Function) else ()


# ---- builders ----


is_var, is_constant, is_expr, is_tuple, is_tuple_get_item = VarPattern, ConstantPattern, ExprPattern, TuplePattern, TupleGetItemPattern
is_if, is_let, wildcard, dominates = IfPattern, LetPattern, WildcardPattern, DominatorPattern


def is_op(op_name):
    """An operator; called with patterns, a call of it."""
    return ExprPattern(get(op_name))


def has_type(ttype, pattern=None):
    """A pattern (None: anything) of a type."""
    return TypePattern(pattern or wildcard(), ttype)


def has_dtype(dtype, pattern=None):
    """A pattern (None: anything) of an element type."""
    return DataTypePattern(pattern or wildcard(), dtype)


def has_shape(shape, pattern=None):
    """A pattern (None: anything) of a shape."""
    return ShapePattern(pattern or wildcard(), shape)


def has_attr(attrs, pattern=None):
    """A pattern (None: anything) with attributes."""
    return AttrPattern(pattern or wildcard(), attrs)


def match(pattern, expr):
    """Whether `pattern` matches `expr` (not something inside of it)."""
    return any(True for _ in pattern.ways(expr, None, True))


for _name, _op in {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide"}.items():
    setattr(DFPattern, f"__{_name}__", lambda self, other, op=_op: is_op(op)(self, other))
for _name, _class in {"attr": AttrPattern, "type": TypePattern, "dtype": DataTypePattern, "shape": ShapePattern}.items():
    setattr(DFPattern, f"has_{_name}", lambda self, what, c=_class: c(self, what))


# ---- groups ----


class _Group(typing.NamedTuple):
    root: rx.Expr
    nodes: dict  # pattern -> the nodes that it matched
    args: list  # what goes in
    function: rx.Function
    name: str


def _below(pattern):
    redirected = pattern.redirected if isinstance(pattern, WildcardPattern) else None
    return pattern.parts() if redirected is None else (redirected,)


_NAMES = {rx.Tuple: "Tuple_", rx.If: "If_", rx.Let: "Let_"}


class _Grouper:
    """Groups the nodes of an expression that a pattern matches, from its result down."""

    def __init__(self, pattern, expr):
        self.patterns = rx.post_order(pattern, _below)
        self.order = [e for e in rx.all_nodes(expr) if isinstance(e, rx.Expr)]
        self.readers: dict[int, list] = {}
        for e in self.order:
            for c in rx.parts(e):
                self.readers.setdefault(id(c), []).append(e)
        self.groups: dict[int, _Group] = {}  # by the root's id
        self.taken: set[int] = set()
        self.number = 0
        self.ends = {id(expr)}
        closed: set[int] = set()
        for e in reversed(self.order):
            if isinstance(e, rx.Function) and "PartitionedFromPattern" in e.attrs:
                closed.update(map(id, rx.all_nodes(e)))
            if id(e) in self.taken or id(e) in closed:
                continue
            found = next(pattern.ways(e, None, True), None)
            if found is not None:
                self.group(e, _nodes_of(found))

    def group(self, root, nodes):
        inside = set()  # what is no input although a leaf of the pattern matches it
        for p in self.patterns:
            if isinstance(p, DominatorPattern):
                inside.update(id(n) for part in (p.parent, p.path) for n in nodes.get(part, ()))
            if isinstance(p, FunctionPattern):
                inside.update(id(n) for f in nodes.get(p, ()) for n in rx.all_nodes(f))
        inputs: dict[int, rx.Var] = {}
        args = []
        for p in self.patterns:
            for n in self.leaves(p, nodes):
                if id(n) in inside or id(n) in inputs or isinstance(n, (Op, rx.Function)) or _embeds(n, p):
                    continue
                inputs[id(n)] = rx.Var(f"FunctionVar_{self.number}_{len(args)}")
                args.append(n)
        self.number += 1
        body, names, made = self.extract(root, inputs)
        own = [n for n in made if not isinstance(n, (rx.Function, rx.Constant, Op))]
        if any(id(n) in self.taken for n in own):
            return
        ids = set(map(id, made)) | set(inputs)
        for n in own:
            if n is not root and any(id(r) not in ids and not self.dominated(r, root) for r in self.readers.get(id(n), ())):
                return
        self.taken.update(ids - {k for k in inputs} | {id(n) for n in made})
        self.groups[id(root)] = _Group(root, nodes, args, rx.Function([inputs[id(a)] for a in args], body), names)

    @staticmethod
    def leaves(p, nodes):
        """The nodes that go into a group because of a pattern."""
        found = nodes.get(p, ())
        if isinstance(p, TuplePattern) and p.fields is None:
            return [f for t in found for f in t.fields]
        if isinstance(p, CallPattern) and p.args is None:
            return [a for c in found for a in c.args]
        return () if p.parts() or getattr(p, "redirected", None) is not None else found

    def extract(self, root, inputs):
        """The expression of a group over its inputs, its name, and the nodes that are in it."""
        memo, made, names, stack = {}, [], [], [(root, False)]
        while stack:
            e, done = stack.pop()
            if done:
                made.append(e)
                memo[id(e)] = rx.with_parts(e, [memo[id(c)] for c in rx.parts(e)])
                if isinstance(e, rx.Call):
                    of_function = "FunctionCall_" if isinstance(e.op, rx.Function) else ""
                    names.append(f"{e.op_name}_" if e.op_name else of_function)
                elif isinstance(e, rx.TupleGetItem):
                    names.append(f"TupleGetItem{e.index}_")
                else:
                    names.append(_NAMES.get(type(e), ""))
            elif id(e) not in memo:
                if id(e) in inputs:
                    memo[id(e)] = inputs[id(e)]
                else:
                    stack.append((e, True))
                    stack.extend((c, False) for c in reversed(rx.parts(e)))
        return memo[id(root)], "".join(names), list({id(e): e for e in made}.values())

    def dominated(self, e, root):
        """Whether everything that is computed of a node goes through `root`."""
        met = rx.reach([e], lambda n: [r for r in self.readers.get(id(n), ()) if r is not root])
        return all(id(n) not in self.ends for n in met)


def _embeds(e, pattern):
    """Whether a constant stays inside of the group: the pattern asks for a constant."""
    if not isinstance(e, rx.Constant):
        return False
    asked = pattern.expr if isinstance(pattern, ExprPattern) else None
    return isinstance(pattern, ConstantPattern) or isinstance(asked, rx.Constant)


def _replace(grouper, make):
    """The expression of a grouper with the roots of its groups replaced: ``make(group, root as rebuilt, new)``, where ``new(node)`` is
    what a node has become."""
    memo: dict[int, object] = {}

    def new(n):
        return memo.get(id(n), n)

    for e in grouper.order:
        post = rx.with_parts(e, [new(c) for c in rx.parts(e)])
        group = grouper.groups.get(id(e))
        memo[id(e)] = post if group is None else make(group, post, new)
    return new(grouper.order[-1])


def partition(pattern, expr, attrs=None, check=lambda x: True):
    """`expr`, where what `pattern` matches has become calls of functions.

    Parameters
    ----------
    pattern : DFPattern
    expr : relay.Expr
    attrs : dict, optional
        Attributes of the functions, besides ``PartitionedFromPattern`` (the operators).
    check : callable, optional
        Called with the root of each group; where it says False, the group stays as it is.

    Returns
    -------
    relay.Expr
    """

    def make(group, post, new):
        if not check(group.root):
            return post
        f = group.function.with_attr("PartitionedFromPattern", group.name)
        for k, v in (attrs or {}).items():
            f = f.with_attr(k, v)
        return rx.Call(f, [new(a) for a in group.args])

    return _replace(_Grouper(pattern, expr), make)


class DFPatternCallback:
    """A rewriting rule: `pattern`, and ``callback(pre, post, node_map) -> Expr``, which gets the root of a match before and after its parts
    were rewritten, and the nodes by pattern. `require_type`: types are inferred before; `rewrite_once`: not until nothing changes."""

    def __init__(self, require_type=False, rewrite_once=False):
        self.pattern = None
        self.require_type, self.rewrite_once = require_type, rewrite_once

    def rewrite(self, expr):
        """`expr` after this rule."""
        return rewrite(self, expr)

    def callback(self, pre, post, node_map):
        raise NotImplementedError("callback(pre, post, node_map) says what takes the place of a match")


def rewrite(callbacks, expr, mod=None):
    """`expr` after rewriting rules (one or a list of them), which are applied in turn until nothing changes."""
    callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    done: set[int] = set()
    for _ in range(100):
        before = expr
        for c in callbacks:
            if id(c) in done:
                continue
            if c.require_type:
                rx.above.infer_type(expr)
            old = expr

            def make(group, post, new, c=c):
                return c.callback(group.root, post, {p: [new(n) for n in nodes] for p, nodes in group.nodes.items()})

            expr = _replace(_Grouper(c.pattern, expr), make)
            if c.rewrite_once and expr is not old:
                done.add(id(c))
        if len(done) == len(callbacks) or expr is before or first_difference(before, expr, True) is None:
            break
    return expr
