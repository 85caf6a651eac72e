"""Numbers that programs get wrong, as tensors, and the budget of a difference."""

import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
TYPES = {str(t).removeprefix("torch."): t for t in (*FLOATS, *INTEGERS, torch.bool)}
# Units in the last place. Of float64 there is no more exact reference.
ULPS = {torch.float32: 4, torch.float64: 64, torch.float16: 2, torch.bfloat16: 2}


def special(dtype):
    """Zeros, infinities, NaN, the edges of a type, halves that are ties of rounding, arguments near the zeros of functions."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        some = {0, 1, 2, 3, 5, 7, 8, 31, 100, info.max, info.max - 1, info.max // 2, info.min, info.min + 1, info.bits - 1, info.bits}
        some |= set() if info.min == 0 else {-1, -2, -3, -7, -100}
        return torch.tensor(sorted(v for v in some if info.min <= v <= info.max), dtype=dtype)
    info = torch.finfo(dtype)
    eps, tiny, most = info.eps, info.tiny, info.max
    plain = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 7.0, 0.1, 1 / 3, 0.7, 3.14159265, 1.57079633, 6.2831853, 10.3, 17.2, 60.0, 88.5, 100.0,
             104.0, 255.0, 256.0, 300.0, 1e4, 32768.0, 65504.0, 2.0**24 + 2, 2.0**31, 2.0**53, 2.0**63, 1e20, 1e-2, 1e-3, 1e-4, 1e-7, 1e-10, 1e-20,
             eps, eps / 2, 1 + eps, 1 - eps / 2, tiny, tiny * 1.5, tiny / 2, tiny * eps, most, most / 2, most**0.5, tiny**0.5,
             float("inf"), 0.4142, 0.9, 0.999, 1.001, 4.5, 5.5, 12.5]  # fmt: skip
    both = [s * v for v in plain for s in (1, -1)] + [float("nan")]
    return torch.tensor(both, dtype=torch.float64).to(dtype)


def fillings(dtype):
    """{name: function of (the sample's tensor, generator) that gives a tensor of its shape}."""
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        inf, nan = float("inf"), float("nan")
        far = 1e4 if info.max > 1e5 else 100.0
        drawn = {
            "ties": [-1.0, 0.0, -0.0, 1.0, 2.0, 1.0],
            "zeros": [0.0, -0.0],
            "tiny": [info.tiny, -info.tiny, info.tiny / 2, -info.tiny / 4, info.tiny * info.eps, info.tiny * 3, 0.0],
            "huge": [info.max, -info.max, info.max / 2, info.max**0.5, -(info.max**0.5), 1.0],
            "minus infinity": [-inf],
            "infinity": [inf],
            "NaN": [nan],
        }
        mixed = {"some NaN": [nan], "some infinity": [inf, -inf], "one infinity": [inf], "some minus infinity": [-inf]}
        table = {"plain": lambda x, g: x, "offset": lambda x, g: (x.double() % 7 + far).to(dtype)}
        table |= {k: lambda x, g, v=v: _draw(v, x, g) for k, v in drawn.items()}
        table |= {k: lambda x, g, v=v: torch.where(torch.rand(x.shape, generator=g) < 0.25, _draw(v, x, g), x) for k, v in mixed.items()}
        some = special(dtype)
        some = some[~some.isfinite() | (some == 0) | ((some.abs() < info.max**0.5 / 64) & (some.abs() > info.tiny**0.5 * 64))]
        table["special"] = lambda x, g: _draw(some, x, g)  # products of these stay within the type
        return table
    if dtype == torch.bool:
        return {"plain": lambda x, g: x, "true": lambda x, g: torch.ones_like(x), "false": lambda x, g: torch.zeros_like(x)}
    return {
        "plain": lambda x, g: x,
        "special": lambda x, g: _draw(special(dtype), x, g),
        "ties": lambda x, g: _draw([0, 1, 2, 1], x, g),
        "most": lambda x, g: torch.full_like(x, torch.iinfo(dtype).max),
        "least": lambda x, g: torch.full_like(x, torch.iinfo(dtype).min),
        "outside": lambda x, g: _draw([-1, -3, 100, torch.iinfo(dtype).max, torch.iinfo(dtype).min, 0], x, g),
    }


def _draw(values, x, g):
    values = torch.as_tensor(values, dtype=torch.float64 if x.dtype.is_floating_point else x.dtype).to(x.dtype)
    return values[torch.randint(0, len(values), x.shape, generator=g)]


# ---- the budget ----


def ulp(x, dtype):
    """The distance of the numbers of a type around x (float64)."""
    info = torch.finfo(dtype)
    _, e = torch.frexp(torch.where(x.isfinite(), x.abs(), torch.ones_like(x)).clamp(info.tiny, info.max))
    return torch.ldexp(torch.full_like(x, info.eps), e - 1).clamp(min=info.tiny * info.eps)


def difference(got, own, wide, together, near=None):
    """(index of an element, what is wrong with it) of a result; None if it is as good as PyTorch's ``own``. ``wide``: in float64.
    ``together``: elements depend on several inputs, so that errors are measured by the largest of them. ``near``: how much the result
    changes where inputs change by half a unit in their last place."""
    if got.shape != own.shape or got.dtype != own.dtype:
        return None, f"is {got.dtype}{list(got.shape)}, not {own.dtype}{list(own.shape)}"
    if not own.dtype.is_floating_point:
        bad = got != own
        return _first(bad, "integers differ")
    if wide is None or wide.shape != own.shape or not wide.dtype.is_floating_point:
        wide = own.double()
    dtype, g, o = own.dtype, got.double(), own.double()
    rounded = wide.to(dtype).double()
    same = (g == o) | (g == rounded) | (g.isnan() & (o.isnan() | rounded.isnan()))
    error, theirs = (g - wide).abs(), (o - wide).abs()
    finite = g.isfinite() & wide.isfinite() & o.isfinite()
    lost = wide.isfinite() & ~o.isfinite() & (o != rounded)  # PyTorch's error is infinite
    limit = torch.maximum(2 * theirs, ULPS[dtype] * ulp(wide, dtype))
    if together and bool(finite.any()):
        largest = torch.where(finite, theirs, 0).max() * 2
        limit = torch.maximum(limit, torch.maximum(largest, ULPS[dtype] * torch.finfo(dtype).eps * torch.where(finite, wide.abs(), 0).max()))
    if near is not None:
        limit = torch.maximum(limit, 4 * near)
    bad = ~(same | lost | (finite & (error <= limit)))
    found = _first(bad & (g.isfinite() & o.isfinite()), "error") or _first(bad, "NaN or infinity")
    if found:
        return found
    zero = (g == 0) & (o == 0) & (g.signbit() != o.signbit()) & (rounded.signbit() != g.signbit() if not together else wide == 0)
    return _first(zero, "sign of zero")


def _first(bad, what):
    return (tuple(bad.nonzero()[0].tolist()), what) if bool(bad.any()) else None
