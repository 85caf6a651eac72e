"""Passes over networks."""

from ..passes import (FunctionPass, ModulePass, Pass, PassContext, PassInfo, PrintIR, Sequential, function_pass,
                      module_pass)  # fmt: skip
from .alter_layout import AlterOpLayout
from .annotate_spans import AnnotateSpans
from .basic import DeadCodeElimination, InferType, RemoveUnusedFunctions
from .check_indices import CheckIndices
from .choose_forms import ChooseForms
from .column_weights import ColumnWeights
from .combine_parallel import CombineParallelBatchMatmul, CombineParallelConv2D, CombineParallelDense
from .convert_layout import ConvertLayout, LayoutConfig
from .fill_channels import FillChannels
from .flat_weights import FlatWeights
from .fold_constant import FoldConstant
from .fold_scale_axis import BackwardFoldScaleAxis, FoldScaleAxis, ForwardFoldScaleAxis
from .fuse import DefuseOps, FuseOps
from .inline import Inline, InlineAll
from .join_in_place import JoinInPlace
from .late_reshape import LateReshape
from .legalize import FastMath, Legalize
from .mixed_precision import ToMixedPrecision
from .moves import OwnMoves, SimplifyMoves
from .normal_forms import ToANormalForm, ToGraphNormalForm
from .simplify import CanonicalizeCast, CanonicalizeOps, EliminateCommonSubexpr, SimplifyExpr, SimplifyInference
from .tensor_cores import ForTensorCores

__all__ = ["Pass", "PassContext", "Sequential", "function_pass", "module_pass", "AlterOpLayout", "AnnotateSpans",
           "FastMath", "Legalize", "ToANormalForm", "ToGraphNormalForm", "PassInfo", "ModulePass", "FunctionPass",
           "PrintIR", "DeadCodeElimination", "InferType", "RemoveUnusedFunctions", "FillChannels", "FlatWeights",
           "FoldConstant", "BackwardFoldScaleAxis", "FoldScaleAxis", "ForwardFoldScaleAxis", "DefuseOps", "FuseOps",
           "CanonicalizeCast", "ChooseForms", "CanonicalizeOps", "CombineParallelBatchMatmul", "CombineParallelConv2D",
           "CombineParallelDense", "ConvertLayout", "LayoutConfig", "EliminateCommonSubexpr", "Inline", "InlineAll",
           "JoinInPlace", "LateReshape", "OwnMoves", "SimplifyMoves", "CheckIndices", "ColumnWeights", "ForTensorCores",
           "SimplifyExpr", "SimplifyInference", "ToMixedPrecision"]  # fmt: skip
