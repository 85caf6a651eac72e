"""ChooseForms: the form in which a fused function computes its convolution, direct or Winograd's, by what was measured.

The forms are variants of one task: a fused function with the form of its convolution exchanged, epilogue and all. Where records of them
are known, the fastest one is taken, else the one that a closed form prefers (:func:`relay.op.nn.winograd.forms`). The pass runs behind
FuseOps, for only there it is known what else a kernel computes, and whose measured time counts. It concerns convolutions with constant
weights, which Winograd's forms want transformed.
"""

from .. import passes
from ..expr import Call, Constant, Function, Var, bind, count_refs, is_primitive_call, post_order, rewrite
from ..extract import structural_key
from ..infer import infer_type
from ..op.nn.winograd import DIRECT, forms
from .alter_layout import in_tiles, may_alter
from .fold_constant import fold

__all__ = ["ChooseForms", "variants_of"]


def variants_of(func):
    """The other forms of a fused function that may be the fastest: tuple of Function, their parameters in the same order."""
    return func.attrs.get("variants", ())


def _convolution(call):
    """(the only convolution of a fused function, the place of its weight among the parameters), where that is a constant; or None."""
    found = [e for e in post_order(call.op.body) if isinstance(e, Call) and e.op_name == "nn.conv2d"]
    if len(found) != 1 or not isinstance(found[0].args[1], Var):
        return None
    weight = found[0].args[1]
    at = next(i for i, p in enumerate(call.op.params) if p is weight)
    return (found[0], at) if isinstance(call.args[at], Constant) and count_refs(call.op.body)[id(weight)] == 1 else None


def _in_form(func, conv, at, form, target, config):
    """(a fused function in a form of its convolution, its weight as an expression of the old parameter)."""
    weight = func.params[at]
    if form == DIRECT:
        return func, weight
    made = in_tiles(conv, form, target, config)
    transformed = infer_type(Function([weight], made.args[1])).body
    packed = Var(weight.name_hint, transformed.checked_type)
    body = rewrite(func.body, lambda old, new: Call(made.op, [new.args[0], packed], made.attrs, span=made.span) if old is conv else new)
    params = [packed if p is weight else p for p in func.params]
    return infer_type(Function(params, body, attrs=func.attrs)), transformed


def ChooseForms(target, rank=None):
    """The pass.

    Parameters
    ----------
    target : Target
    rank : callable, optional
        Function -> what its records are worth, the smaller the better, or None if there are none.
    """

    @passes.function_pass(opt_level=3, name="ChooseForms")
    def run(func, mod, ctx):
        if not ctx.enabled("AlterOpLayout", 3):  # whose choice this is
            return func
        infer_type(func)
        chosen, packed = {}, {}  # by structural key: the forms, that to take first; by weight and expression: what it becomes

        def variants(call, conv, at):
            """(parameter for the weight, [(function, weight as an expression of the parameter)])"""
            key = structural_key(call.op)
            if key not in chosen:
                made = [_in_form(call.op, conv, at, f, target, ctx.config) for f in forms(conv, target, ctx.config)]
                ranks = [rank(f) for f, _ in made] if rank and len(made) > 1 else [None] * len(made)
                known = [i for i, r in enumerate(ranks) if r is not None]
                best = min(known, key=ranks.__getitem__) if known else 0
                chosen[key] = call.op.params[at], [made[best], *made[:best], *made[best + 1 :]]
            return chosen[key]

        def visit(old, new):
            found = _convolution(new) if is_primitive_call(new) else None
            if found is None or not may_alter(found[0], target):
                return new
            weight, ((form, transformed), *others) = variants(new, *found)
            at, args = found[1], list(new.args)
            key = id(args[at]), id(transformed)
            if key not in packed:
                packed[key] = fold(infer_type(bind(transformed, {weight: args[at]})))
            args[at] = packed[key]
            if others:
                form = form.with_attr("variants", tuple(f for f, _ in others))
            return Call(form, args, span=new.span)

        return rewrite(func, visit)

    return run
