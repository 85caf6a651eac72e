"""AlterOpLayout: replaces convolutions by the form the target wants and gives per-channel constants full rank.

The replacements are Winograd for 3x3, stride-1 convolutions in NHWC, and blocks of channels where templates for CPUs are used (see
:mod:`.blocks`). Afterwards every value has a layout that is
known (it
comes from a convolution, a pool, ...) or not. Where a broadcasting operator meets a value of known layout and one of
lower rank, the latter gets leading axes of extent 1: [C] becomes [1, 1, 1, C].
"""

from ...target import Target
from .. import op, passes, schedules
from ..expr import Call, Constant, Tuple, TupleGetItem, free_vars, post_order, rewrite, with_children
from ..infer import infer_type
from ..op import nn
from ..op.nn.winograd import is_gpu, transforms_weight, winograd_tile
from ..op.tensor import BINARY, COMPARE
from ..ty import Any
from .blocks import blocked

__all__ = ["AlterOpLayout", "in_tiles", "is_in_tiles", "may_alter", "winograd_tile"]

_BROADCAST = {*BINARY, *COMPARE}


def may_alter(call, target):
    """Whether the form of a convolution is chosen among graph passes: not where the task contains the transform, nor where a template is
    to compute it."""
    templates = schedules.templates()
    return transforms_weight(target) and not (templates and templates.prefers(call, target))


def in_tiles(call, tile, target, config):
    """A convolution call in Winograd's form, whose weight is transformed on the way."""
    weight = op.transpose(call.args[1], (3, 2, 0, 1))
    a = dict(call.attrs, out_layout=call.attrs.out_layout or "NHWC")
    if config.get("relay.winograd") in ("fastest", "measured") and not is_gpu(target):
        a["by_rows"] = True
    transformed = nn.contrib_conv2d_winograd_weight_transform(weight, tile)
    new = nn.contrib_conv2d_winograd_without_weight_transform(call.args[0], transformed, tile, **a)
    new.span = call.span
    return new


_TILES = "nn.contrib_conv2d_winograd_without_weight_transform"


def is_in_tiles(call, target, config):
    """Whether a call is a convolution in Winograd's tiles, or one that ChooseForms brings into them unless records say otherwise."""
    if call.op_name != "nn.conv2d" or config.get("relay.winograd") != "measured" or not isinstance(call.args[1], Constant):
        return call.op_name == _TILES
    return may_alter(call, target) and winograd_tile(call, target, config) is not None


def expand_ranks(func):
    """The second half of the pass: per-channel operands get the rank of the value they meet."""
    known: dict[int, bool] = {}

    def visit(old, new):
        k = False
        if isinstance(new, Call) and new.op_name:
            name = new.op_name
            flags = [known.get(id(a), False) for a in new.args]
            k = any(flags) if new.op.ranked is None else new.op.ranked
            if name in _BROADCAST and k:
                t = [a.checked_type for a in new.args]
                r = [len(x.shape) for x in t]
                if r[0] != r[1]:
                    hi = 0 if r[0] > r[1] else 1
                    if flags[hi] and any(isinstance(d, Any) or d != 1 for d in t[1 - hi].shape):
                        args = list(new.args)
                        args[1 - hi] = op.expand_dims(args[1 - hi], 0, abs(r[0] - r[1]))
                        new = with_children(new, args)
        elif isinstance(new, Tuple):
            k = any(known.get(id(f), False) for f in new.fields)
        elif isinstance(new, TupleGetItem):
            k = known.get(id(new.tuple_value), False)
        known[id(new)] = k
        keep.append(new)
        return new

    keep: list = []
    infer_type(func)
    return rewrite(func, visit)


def _by_users(func):
    """`func` with the forms that users registered for operators (``FTVMAlterOpLayout``): ``f(attrs, inputs, types, type of the result)``."""

    def visit(old, new):
        f = new.op.get_attr("FTVMAlterOpLayout") if isinstance(new, Call) and new.op_name else None
        made = f and f(new.attrs, list(new.args), [a.checked_type for a in old.args], old.checked_type)
        if made is None:
            return new
        if made.checked_type != old.checked_type:
            raise ValueError(f"the FTVMAlterOpLayout of {new.op_name} gives {made.checked_type} for "
                             f"{old.checked_type}; bring the result back with relay.layout_transform: layouts of users "
                             "are not carried on to other operators")  # fmt: skip
        return made

    return rewrite(func, visit)


def AlterOpLayout(target=None):
    """The pass for a target (None: the one of the enclosing ``with Target(...)``, else llvm)."""
    target = target or Target.current() or Target("llvm")

    @passes.function_pass(opt_level=3, name="AlterOpLayout")
    def run(func, mod, ctx):
        templates = schedules.templates()
        infer_type(func)
        if any(isinstance(e, Call) and e.op_name and "FTVMAlterOpLayout" in e.op.given for e in post_order(func.body)):
            func = _by_users(func)
            infer_type(func)

        def visit(old, new):
            if not isinstance(new, Call) or new.op_name != "nn.conv2d" or not may_alter(old, target):
                return new
            if ctx.config.get("relay.winograd") == "measured" and not free_vars(old.args[1]):
                return new  # ChooseForms will see to it
            tile = winograd_tile(new, target, ctx.config)
            return in_tiles(new, tile, target, ctx.config) if tile else new

        func = rewrite(func, visit)
        if templates and not schedules.asked():
            func = blocked(func, lambda call: templates.block(call, target))
        return expand_ranks(func)

    return run
