"""Loops over values: a function that calls itself."""

from .expr import Call, Function, Let, Tuple, Var
from .scope_builder import ScopeBuilder
from .ty import TupleType

__all__ = ["while_loop"]


def while_loop(cond, loop_vars, loop_bodies):
    """A function of the first values of `loop_vars` that returns the last ones as a tuple.

    Parameters
    ----------
    cond : callable
        From variables to whether there is another turn (an expression of type bool).
    loop_vars : list of Var
        Names and types of the values.
    loop_bodies : callable
        From variables to the values of the next turn.

    Returns
    -------
    relay.Expr
        To be called with as many arguments as there are variables.
    """
    sb, loop = ScopeBuilder(), Var("while_loop")
    fresh = [Var(v.name_hint, v.type_annotation) for v in loop_vars]
    with sb.if_scope(cond(*fresh)):
        sb.ret(Call(loop, loop_bodies(*fresh)))
    with sb.else_scope():
        sb.ret(Tuple(fresh))
    return Let(loop, Function(fresh, sb.get(), TupleType([v.type_annotation for v in fresh])), loop)
