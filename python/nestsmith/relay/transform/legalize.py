"""Legalize: operators become what users registered for them. FastMath: functions become their fast approximations."""

from .. import op, passes
from ..expr import Call, TupleWrapper, rewrite
from ..infer import infer_type

__all__ = ["FastMath", "Legalize"]


def Legalize(legalize_map_attr_name="FTVMLegalize"):
    """Replaces calls of operators that have an attribute of this name: ``f(attrs, inputs, types) -> expression or None``, `types` being those
    of the arguments and of the result."""

    @passes.function_pass(opt_level=1, name="Legalize")
    def run(func, mod, ctx):
        infer_type(func)

        def visit(old, new):
            f = new.op.get_attr(legalize_map_attr_name) if isinstance(new, Call) and new.op_name else None
            if f is None:
                return new
            made = f(new.attrs, list(new.args), [*(a.checked_type for a in old.args), old.checked_type])
            made = made.astuple() if isinstance(made, TupleWrapper) else made
            return new if made is None else made

        return rewrite(func, visit)

    return run


_FAST = {"exp": "fast_exp", "tanh": "fast_tanh", "erf": "fast_erf", "nn.softmax": "nn.fast_softmax"}


@passes.makes_function_pass(opt_level=4)
def FastMath(func, mod, ctx):
    """Replaces ``exp``, ``tanh``, ``erf`` and ``nn.softmax`` by their ``fast_`` forms."""
    def visit(old, new):
        if isinstance(new, Call) and new.op_name in _FAST:
            return Call(op.get(_FAST[new.op_name]), new.args, new.attrs, new.type_args, new.span)
        return new

    return rewrite(func, visit)
