"""The operators of PyTorch's own database of samples, each imported and computed. As a module: the samples and how one is run."""

import contextlib
import io
import itertools
import logging
import warnings

import numpy as np
import torch
from whole_networks import computed, outputs

from nestsmith import relay
from nestsmith.error import OpNotImplemented

KINDS = {"float32": torch.float32, "int64": torch.int64, "bool": torch.bool}
# No functions of their arguments alone, or of what no network has.
OUTSIDE = ("random", "dropout", "bernoulli", "multinomial", "normal", "uniform", "exponential", "cauchy", "geometric", "randint", "randn",
           "rand_like", "empty", "sparse", "jiterator", "rrelu", "nested", "_rebuild", "to_sparse", "item", "stft", "fft", "polar", "complex",
           "view_as_real", "nn.functional.scaled_dot_product_attention_", "as_strided", "_segment", "ops.aten._safe_softmax")  # fmt: skip
# Where sums of large terms leave small ones, in PyTorch's float32, too: errors are of the size of the largest element's.
NORMWISE = ("matrix_exp",)
# Where equal elements go is not said.
SORTED = ("sort", "argsort", "topk", "kthvalue", "mode", "median", "msort")


def operators():
    """The entries of the database by their names, in order."""
    from torch.testing._internal.common_methods_invocations import op_db  # seconds, and memory

    found = {}
    for info in op_db:
        name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        if not any(word in name for word in OUTSIDE):
            found[name] = info
    return dict(sorted(found.items()))


class Applied(torch.nn.Module):
    """An operator on some of its arguments; the others are as in the sample."""

    def __init__(self, op, leaves, spec):
        super().__init__()
        self.op, self.leaves, self.spec = op, leaves, spec

    def forward(self, *tensors):
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(v, torch.Tensor) else v for v in self.leaves]
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self.spec)
        out = self.op(*args, **kwargs)
        return tuple(v for v in torch.utils._pytree.tree_leaves(out) if isinstance(v, torch.Tensor))


def verdict(info, sample, build=False):
    """What becomes of one sample: "ok", "refused: why", "wrong: why", or None where PyTorch itself cannot say what it is."""
    leaves, spec = torch.utils._pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    inputs = [v.detach().clone() for v in leaves if isinstance(v, torch.Tensor)]
    if any(v.is_complex() or v.layout != torch.strided for v in inputs) or not inputs:
        return None
    if info.name.split(".")[-1] in SORTED and inputs[0].unique().numel() < inputs[0].numel():
        return None
    model = Applied(info.op, leaves, spec).eval()
    try:
        with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            want = model(*(v.clone() for v in inputs))
            program = torch.export.export(model, tuple(v.clone() for v in inputs), strict=False)
    except Exception:
        return None
    if not want or any(w.is_complex() or w.numel() == 0 for w in want) or any(v.numel() == 0 for v in inputs):
        return None
    try:
        mod, params = relay.frontend.from_pytorch(program)
        given = [v.numpy() for v in inputs]
        if build:
            got = outputs(mod, params, inputs)
        else:
            got = computed(mod, params, given)
    except OpNotImplemented as e:
        return "refused: " + " ".join(" ".join(str(e).splitlines()[:2]).split())[:160]
    except Exception as e:
        return f"wrong: {type(e).__name__}: {' '.join(str(e).split())[:300]}"
    for g, w in zip(got, want):
        w = w.detach().float().numpy() if w.dtype == torch.bfloat16 else w.detach().numpy()
        if g.shape != w.shape or (g.dtype != w.dtype):
            return f"wrong: {g.dtype}{list(g.shape)}, not {w.dtype}{list(w.shape)}"
        try:
            size = max(1.0, float(np.abs(w).max()) / 100) if info.name in NORMWISE else 1.0
            np.testing.assert_allclose(g.astype("float64"), w.astype("float64"), rtol=2e-4, atol=2e-4 * size, equal_nan=True)
        except AssertionError as e:
            return "wrong: " + " ".join(str(e).split())[:200]
    return "ok"


def run(name, most=4, kinds=tuple(KINDS), build=False):
    """(operator, verdicts of its samples): `most` of each type. PyTorch's warnings are not shown meanwhile."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        return name, list(verdicts(operators()[name], most, kinds, build))
    finally:
        logging.disable(before)


def verdicts(info, most, kinds, build):
    for kind in kinds:
        if KINDS[kind] not in info.dtypes:
            continue
        torch.manual_seed(0)
        try:
            samples = list(itertools.islice(info.sample_inputs("cpu", KINDS[kind], requires_grad=False), most))
        except Exception:
            continue
        yield from (v for v in (verdict(info, s, build) for s in samples) if v is not None)
