"""What is tried: PyTorch's operators on samples of its own database, with numbers that programs get wrong."""

import contextlib
import functools
import io
import itertools
import logging
import warnings
import zlib
from dataclasses import dataclass, field

import aten_operators
import torch
from sweep_exact import exact
from sweep_values import TYPES, fillings, special
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from nestsmith import relay
from nestsmith.error import OpNotImplemented

COMPLEX = ("cfloat", "cdouble", "chalf")
# Which of several equal elements comes first is not said.
UNORDERED = ("topk", "kthvalue", "mode", "median", "nanmedian")
SCALARS = {True: (0.1, -2.5, 0.0, 3), False: (3, -1, 0)}
# Degrees of polynomials. Above 8 an error of half a unit of the argument grows by the degree, in PyTorch as well: not for float64.
DEGREES = (-3, -1, *range(9), 31, 100)


@dataclass
class Case:
    """An operator on tensors; ``leaves`` of the arguments that are no tensors stay as they are."""

    name: str
    kind: str
    op: object
    leaves: list
    spec: object
    together: bool
    fills: list = field(default_factory=list)  # (name, tensors)
    mod: object = None
    params: dict = None
    program: object = None
    outputs: int = 0

    def __str__(self):
        return f"{self.name}[{self.kind}]"

    def arguments(self, tensors):
        rest = iter(tensors)
        return tree_unflatten([next(rest) if isinstance(v, torch.Tensor) else v for v in self.leaves], self.spec)

    def run(self, tensors):
        """PyTorch's results."""
        args, kwargs = self.arguments([t.clone() for t in tensors])
        return _outputs(self.op(*args, **kwargs))

    def wide(self, tensors):
        """PyTorch's results where every float is of 64 bits (and integers, if there is no float); None if it has none."""
        floats = any(t.dtype.is_floating_point for t in tensors)

        def widened(v):
            if isinstance(v, torch.Tensor):
                return v.double() if v.dtype.is_floating_point or not floats else v
            return torch.float64 if isinstance(v, torch.dtype) and v.is_floating_point else v

        try:
            args, kwargs = tree_map(widened, self.arguments([t.clone() for t in tensors]))
            return _outputs((exact(self.name) or self.op)(*args, **kwargs))
        except Exception:
            return None


    def taken_apart(self, tensors):
        """The results of PyTorch's own definition of the operator by others; None if there is none."""
        try:
            with silent():
                return _outputs(self.program.run_decompositions().module()(*(t.clone() for t in tensors)))
        except Exception:
            return None


class _Module(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case = case

    def forward(self, *tensors):
        args, kwargs = self.case.arguments(tensors)
        return _outputs(self.case.op(*args, **kwargs))


def _outputs(out):
    return tuple(v for v in tree_leaves(out) if isinstance(v, torch.Tensor))


@contextlib.contextmanager
def silent():
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@functools.cache
def operators():
    """The entries of the database by their names, in order, without those that make complex numbers."""
    return {name: info for name, info in aten_operators.operators().items() if not any(word in name for word in COMPLEX)}


def _samples(info, dtype, seed, most):
    """Some of the samples of an operator; which ones depends on the seed."""
    torch.manual_seed(0)
    made = info.sample_inputs("cpu", dtype, requires_grad=False)
    try:
        found = list(itertools.islice(made, 300))
    finally:
        if hasattr(made, "close"):
            made.close()
    g = torch.Generator().manual_seed(seed)
    chosen = sorted(torch.randperm(len(found), generator=g)[:most].tolist())
    for s in (found[i] for i in chosen):
        yield (s.input, *s.args), dict(s.kwargs)


def _elementwise(info, dtype):
    """Arguments with all special numbers; of two arguments, all pairs."""
    x = special(dtype)
    if isinstance(info, UnaryUfuncInfo):
        yield (x.clone(),), dict(info.sample_kwargs("cpu", dtype, x)[0])
        return
    if "polynomial" in info.name:
        degrees = [d for d in DEGREES if (d >= 0 or dtype.is_signed) and (d <= 8 or dtype != torch.float64)]
        yield (x[:, None].clone(), torch.tensor(degrees).to(dtype)[None]), {}
        return
    yield (x[:, None].clone(), x[None].clone()), {}
    if info.supports_two_python_scalars or info.name in ("add", "sub", "mul", "div", "pow", "remainder", "fmod", "floor_divide", "true_divide"):
        for s in SCALARS[dtype.is_floating_point]:
            yield (x.clone(), s), {}


def made(name, kind, seed=0, most=2):
    """The cases of an operator and element type that can be imported: (cases, [why not])."""
    info, dtype = operators()[name], TYPES[kind]
    cases, refused = [], []
    if dtype not in info.dtypes:
        return cases, refused
    ufunc = isinstance(info, (UnaryUfuncInfo, BinaryUfuncInfo))
    with silent():
        try:
            samples = list(_elementwise(info, dtype) if ufunc else _samples(info, dtype, seed, most))
        except Exception as e:
            return [], [f"no sample: {e}"]
        for args, kwargs in samples:
            case = _case(name, kind, info, args, kwargs, not ufunc, seed)
            if isinstance(case, str):
                refused.append(case)
            elif case:
                cases.append(case)
    return cases, refused


def _case(name, kind, info, args, kwargs, together, seed):
    leaves, spec = tree_flatten((args, kwargs))
    tensors = [v.detach().clone() for v in leaves if isinstance(v, torch.Tensor)]
    if not tensors or any(v.is_complex() or v.layout != torch.strided or v.dtype not in TYPES.values() for v in tensors):
        return None
    case = Case(name, kind, info.op, leaves, spec, together)
    case.fills = fill(str(case), kind, tensors, seed) if together else [("special", tensors)]
    try:
        program = torch.export.export(_Module(case).eval(), tuple(v.clone() for v in tensors), strict=False)
    except Exception:
        return None
    try:
        case.program = program
        case.mod, case.params = relay.frontend.from_pytorch(program)
    except OpNotImplemented as e:
        return " ".join(str(e).split())[:160]
    except Exception as e:
        return f"WRONG: {type(e).__name__}: {e}" if _runs(case, tensors) else None
    # only now: some operators that are not imported take hours for an argument of 1e20
    return case if _runs(case, tensors) else None


def _runs(case, tensors):
    try:
        return not any(v.is_complex() for v in case.run(tensors))
    except Exception:
        return False


def fill(case, kind, tensors, seed):
    """[(name, inputs)] of a case. Integers beside floats are indices and the like: they stay, or are all outside."""
    g = torch.Generator().manual_seed(seed + zlib.crc32(case.encode()))
    floats = any(t.dtype.is_floating_point for t in tensors)
    names = fillings(TYPES[kind] if any(t.dtype == TYPES[kind] for t in tensors) else tensors[0].dtype)
    if floats and any(t.dtype in (torch.int64, torch.int32) for t in tensors):
        names = {**names, "outside": None}
    found = []
    for name in names:
        new = []
        for t in tensors:
            own = fillings(t.dtype)
            fixed = floats and not t.dtype.is_floating_point and name != "outside"
            new.append(t if fixed or name not in own else own[name](t, g).clone())
        found.append((name, _sorted(case, new)))
    return found


def _sorted(case, tensors):
    """Boundaries, which have to be in order and numbers: PyTorch looks for a place by halves."""
    at = {"searchsorted": 0, "bucketize": 1}.get(case.split("[")[0])
    tensors = [torch.where(t.isnan(), torch.inf, t) if i == at and t.dtype.is_floating_point else t for i, t in enumerate(tensors)]
    return [t.sort()[0] if i == at and t.dim() else t for i, t in enumerate(tensors)]
