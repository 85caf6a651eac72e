"""The graph pipeline: from a network to a module whose `main` calls primitive functions, the same way for extraction
and build."""

from . import passes as _t, transform as T
from .module import IRModule
from .transform.basic import bind_params_by_name
from .transform.convert_layout import layouts_of_convolutions

__all__ = ["optimize", "fuse_module", "as_module"]


def as_module(mod):
    """A module of a module, a function or an expression."""
    return mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)


def optimize(mod, target, params=None, opt_level=None):
    """Graph passes up to fusion, exclusive. Returns the new module; `params` (name -> array) become constants of
    ``main``."""
    mod = as_module(mod).shallow_copy()
    if "main" not in mod:
        raise ValueError("the module has no function 'main'")
    if params:
        mod["main"] = bind_params_by_name(mod["main"], params)
    ctx = _t.PassContext.current()
    if opt_level is not None and opt_level != ctx.opt_level:
        ctx = _t.PassContext(opt_level, ctx.required_pass, ctx.disabled_pass, ctx.instruments, ctx.config)
    layout = ctx.config.get("relay.ext.layout") or None
    convert = [T.ConvertLayout(layouts_of_convolutions(layout))] if layout else []

    def where(option, *passes):
        return passes if ctx.config.get(f"relay.{option}") else ()

    with ctx:
        return _t.Sequential([
            T.RemoveUnusedFunctions(), T.InferType(), T.InlineAll(), *convert, T.CheckIndices(), T.SimplifyInference(),
            T.EliminateCommonSubexpr(), T.CombineParallelConv2D(), T.CombineParallelDense(), T.CombineParallelBatchMatmul(),
            T.FoldConstant(), T.FoldScaleAxis(), T.SimplifyExpr(), T.CanonicalizeCast(), T.CanonicalizeOps(), T.FastMath(),
            *where("for_tensor_cores", T.ForTensorCores(target)),
            *where("flat_weights", T.FlatWeights(), T.FoldConstant()),
            *where("column_weights", T.ColumnWeights()),
            *where("late_reshape", T.SimplifyMoves(), T.LateReshape(), T.SimplifyMoves(), T.EliminateCommonSubexpr()),
            *where("fill_channels", T.FillChannels()),
            T.AlterOpLayout(target), T.FoldConstant(),
            *where("FuseOps.into_products", T.OwnMoves()),
        ])(mod)  # fmt: skip


def fuse_module(mod, opt_level=None, target=None, rank=None):
    """FuseOps on an optimized module and, where `relay.winograd` is "measured", ChooseForms for the target, by the rank of records."""
    ctx = _t.PassContext.current()
    level = ctx.opt_level if opt_level is None else opt_level
    fused = T.FuseOps(level, target)(mod)
    return T.ChooseForms(target, rank)(fused) if target and ctx.config.get("relay.winograd") == "measured" else fused
