"""Comparing an imported network with the framework it comes from, node by node."""

import numpy as np

from ...contrib.graph_executor import GraphModule
from ...error import ImportMismatch
from ...numerics import is_float
from ...runtime.device import cpu
from ..build_module import build
from ..expr import Constant, Function, Tuple, Var, free_vars
from ..infer import infer_type
from ..module import IRModule

__all__ = ["Comparison"]

# Of the largest element. Networks add roundings up; a wrong operator is off by more.
_TOLERANCE = {"float16": 3e-2, "bfloat16": 1e-1}


def difference(got, want, dtype):
    """What to say about two arrays that differ, else None."""
    if got.shape != want.shape:
        return f"its shape is {got.shape} instead of {want.shape}"
    if not is_float(dtype):
        wrong = got != want
        return f"{int(wrong.sum())} of {want.size} elements differ" if wrong.any() else None
    got, want = got.astype("float64"), want.astype("float64")
    finite = np.isfinite(want)
    same = np.array_equal(got[~finite], want[~finite], equal_nan=True) and np.isfinite(got[finite]).all()
    if not same:
        return "the infinite elements and those that are no numbers are others"
    largest = np.abs(want[finite]).max(initial=0)
    error = np.abs(got[finite] - want[finite]).max(initial=0)
    if error <= _TOLERANCE.get(dtype, 1e-4) * largest + 1e-30:
        return None
    return f"its largest error is {error:.3g}, its largest element {largest:.3g}"


class Comparison:
    """Nodes with their expressions and what the framework computes for them, in its order."""

    def __init__(self, source):
        self.source, self.rows = source, []

    def add(self, label, expr, want):
        """A node: what messages call it, its expression, its value in the framework."""
        if not isinstance(expr, (Var, Constant)):
            self.rows.append((label, expr, want))

    def run(self, mod, params, inputs):
        """Computes all nodes and raises ImportMismatch for the first that differs.

        `mod` and `params` are what the importer returns, `inputs` arrays by name."""
        exprs = list({id(e): e for _, e, _ in self.rows}.values())
        if not exprs:
            return
        body = Tuple(exprs)
        used = {id(v) for v in free_vars(body)}
        args = [p for p in mod["main"].params if id(p) in used]
        whole = IRModule.from_expr(infer_type(Function(args, body)))
        names = {p.name_hint for p in args}
        lib = build(whole, target="llvm", params={k: v for k, v in params.items() if k in names})
        module = GraphModule(lib["default"](cpu()))
        for name, value in inputs.items():
            if name in names:
                module.set_input(name, value)
        module.run()
        place = {id(e): i for i, e in enumerate(exprs)}
        for label, e, want in self.rows:
            why = difference(module.get_output(place[id(e)]).numpy(), np.asarray(want), e.checked_type.dtype)
            if why:
                raise ImportMismatch(f"{label} computes something else than in {self.source}: {why}. The nodes before it agree")
