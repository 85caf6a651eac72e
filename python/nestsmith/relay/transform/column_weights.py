"""ColumnWeights: products of many rows with a constant matrix read the matrix column by column.

``nn.dense`` has its weight as (units, in). Neighbouring threads of a GPU compute neighbouring units, whose weights lie a row apart
there: in shared memory they fall into the same bank. With the weight as (in, units), transposed once at compile time, they lie side
by side. A product of few rows reads every weight once, and how it lies does not matter. Weights of 8 bits whose products are added up
in int32 stay: tensor cores read them along the sum.
"""

from ...numerics import is_byte_product
from ...topi.util import prod
from .. import op, passes
from ..expr import Call, Constant, rewrite
from ..infer import infer_type
from ..op import nn
from ..ty import Any

__all__ = ["ColumnWeights"]

ROWS = 16  # at least


@passes.makes_function_pass(opt_level=3)
def ColumnWeights(func, mod, ctx):
    """The pass. It wants weights to be constants already."""
    infer_type(func)

    def visit(old, new):
        if not isinstance(new, Call) or new.op_name != "nn.dense" or not isinstance(old.args[1], Constant):
            return new
        rows = old.args[0].checked_type.shape[:-1]
        if any(isinstance(d, Any) for d in rows) or prod(rows) < ROWS:
            return new
        if is_byte_product(*(x.checked_type.dtype for x in old.args), old.checked_type.dtype):
            return new
        product = nn.matmul(new.args[0], op.transpose(new.args[1], (1, 0)), new.attrs.units, new.attrs.out_dtype)
        product.span = new.span
        return product

    return rewrite(func, visit)
