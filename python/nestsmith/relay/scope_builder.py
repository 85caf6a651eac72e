"""Building expressions statement by statement: lets, branches and a result."""

from .expr import Expr, If, Let, Tuple, Var, const
from .infer import infer_type

__all__ = ["ScopeBuilder"]


class _Branch:
    """The block of an ``if`` or an ``else``."""

    def __init__(self, enter, leave):
        self.enter, self.leave = enter, leave

    def __enter__(self):
        self.enter()

    def __exit__(self, kind, *exc):
        if kind is None:
            self.leave()


class ScopeBuilder:
    """Collects let-bindings and branches; ``ret`` ends a block, ``get`` gives the expression.

    >>> sb = relay.ScopeBuilder()
    >>> y = sb.let("y", x + x)
    >>> with sb.if_scope(cond):
    ...     sb.ret(y)
    >>> with sb.else_scope():
    ...     sb.ret(x)
    >>> sb.get()
    """

    def __init__(self):
        self._blocks = [([], None)]  # (bindings, result) of the blocks that are open
        self._open_if = None  # (condition, the block of its branch) that waits for its else

    def _result(self, result):
        bindings, old = self._blocks[-1]
        if old is not None:
            raise RuntimeError("the block has a result already: ret, or an if with both branches, ends it")
        self._blocks[-1] = (bindings, result)

    def let(self, var, value):
        """Binds a variable (or a name, of which one is made) to a value; returns the variable."""
        if isinstance(var, str):
            try:
                t = infer_type(value)._type if isinstance(value, Expr) else None
            except ValueError:  # of a function whose parameters are not typed
                t = None
            var = Var(var, t)
        value = value.astuple() if hasattr(value, "astuple") else value if isinstance(value, Expr) else const(value)
        bindings, result = self._blocks[-1]
        if result is not None:
            raise RuntimeError("a let after the result of the block")
        bindings.append((var, value))
        return var

    def ret(self, value):
        """The result of the block: an expression, or a tuple of them."""
        self._result(Tuple(value) if isinstance(value, (tuple, list)) else value)

    def _block(self):
        bindings, result = self._blocks.pop()
        if result is None:
            raise RuntimeError("the block has no result: end it with ret")
        for var, value in reversed(bindings):
            result = Let(var, value, result)
        return result

    def if_scope(self, cond):
        """Context manager of what is done if `cond` is true; :meth:`else_scope` follows."""

        def leave():
            self._open_if = (cond, self._block())

        return _Branch(lambda: self._blocks.append(([], None)), leave)

    def else_scope(self):
        """Context manager of what is done otherwise; the if is the result of the block around it."""
        if self._open_if is None:
            raise RuntimeError("else_scope follows if_scope")
        cond, then = self._open_if

        def leave():
            other = self._block()
            self._open_if = None
            self._result(If(cond, then, other))

        return _Branch(lambda: self._blocks.append(([], None)), leave)

    def type_of(self, expr):
        """The type of an expression."""
        return expr.type_annotation if isinstance(expr, Var) else expr.checked_type

    def get(self):
        """The expression that was built."""
        return self._block()
