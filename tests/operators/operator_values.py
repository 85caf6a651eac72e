"""Element types as the sweep sees them: random values, the rounding and wrapping of expected results, comparison.

What an operator should give is computed in float64 or 64-bit integers and then brought to the element type of the result:
floats are rounded, integers keep their low bits. bfloat16 has no NumPy type; its arrays hold the bits."""

from dataclasses import dataclass

import numpy as np
import torch

FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED, UNSIGNED = ("int32", "int64", "int8", "int16"), ("uint8", "uint32", "uint16", "uint64")
INTS = (*SIGNED, *UNSIGNED)
NUMBERS = (*FLOATS, *INTS)
ALL = (*NUMBERS, "bool")
EPSILON = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


def is_float(dtype):
    return dtype in FLOATS


def storage(dtype):
    """The NumPy type that holds elements of a type."""
    return "uint16" if dtype == "bfloat16" else dtype


def encode(values, dtype):
    """float64 or int64 values as an array of the element type: rounded, or with the low bits only."""
    values = np.asarray(values)
    if dtype == "bfloat16":
        return torch.from_numpy(np.array(values, "float64")).to(torch.bfloat16).view(torch.int16).numpy().view("uint16")
    with np.errstate(all="ignore"):
        return values != 0 if dtype == "bool" else values.astype(dtype)


def decode(array, dtype):
    """The values of an array of the element type, as float64 or int64."""
    if dtype == "bfloat16":
        return torch.from_numpy(np.array(array).view("int16")).view(torch.bfloat16).to(torch.float64).numpy()
    return np.asarray(array).astype("float64" if is_float(dtype) else "int64")


@dataclass(frozen=True)
class In:
    """An input: its shape, the range of its values (None: what suits the element type) and its element type (None: that of
    the sweep). ``wide``: integers use their whole range, so that sums and products wrap."""

    shape: tuple
    low: float = None
    high: float = None
    dtype: str = None
    wide: bool = False

    def draw(self, rng, dtype):
        """Random values, exact in the element type, as float64 or int64."""
        dtype = self.dtype or dtype
        if dtype == "bool":
            return rng.integers(0, 2, self.shape)
        if is_float(dtype):
            low, high = (-3.0 if self.low is None else self.low), (3.0 if self.high is None else self.high)
            x = np.asarray(rng.uniform(low, high, self.shape))
            return np.clip(decode(encode(x, dtype), dtype), low, high)
        info = np.iinfo(dtype)
        least, most = (info.min, min(info.max, 2**62)) if self.wide else (max(info.min, -100), min(info.max, 100))
        low = least if self.low is None else max(int(np.ceil(self.low)), least)
        high = most if self.high is None else min(int(np.floor(self.high)), most)
        return np.asarray(rng.integers(low, high, self.shape, endpoint=True))


def difference(got, want, dtype, accuracy=4.0, loss=64):
    """What is wrong with ``got``, values of an output of the element type; None if nothing is. Floats may differ by
    ``accuracy`` roundings of their own type and by ``loss`` of float32 (float64: of float64), in which they are computed."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if not is_float(dtype):
        bad = got != want
        return f"{np.argwhere(bad)[0]}: {got[bad][0]}, expected {want[bad][0]}" if bad.any() else None
    inner = EPSILON["float64" if dtype == "float64" else "float32"]
    finite = np.isfinite(want)
    size = np.abs(np.where(finite, want, 0))
    allowed = (accuracy * EPSILON[dtype] + loss * inner) * (size + 0.1 * (size.max() if size.size else 0) + 1e-6)
    with np.errstate(all="ignore"):
        ok = np.where(finite, np.abs(got - want) <= allowed, (got == want) | (np.isnan(got) & np.isnan(want)))
    if ok.all():
        return None
    at = tuple(np.argwhere(~ok)[0])
    return f"{at}: {got[at]}, expected {want[at]}; {np.count_nonzero(~ok)} of {ok.size} elements differ"
