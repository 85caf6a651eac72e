"""Operators of ONNX on signals: DFT and STFT. The last axis of a complex tensor holds its real and its imaginary part."""

import numpy as np

from .. import op as relay
from . import common as c, spectrum
from .onnx_ops import converter
from .values import arange, array, dtype_of, rank_of, shape_of

__all__: list = []


def _pair(x):
    """The parts of a tensor, whose last axis has one or two of them."""
    last = rank_of(x) - 1
    parts = [c.element(x, last, k) for k in range(shape_of(x)[last])]
    return parts[0], parts[1] if len(parts) > 1 else None


def _together(pair):
    re, im = pair
    return relay.stack([re, relay.zeros_like(re) if im is None else im], rank_of(re))


@converter("DFT")
def _dft(n, x):
    pair = _pair(n.input(0))
    given = n.array(2, "axis")
    axis = (int(np.asarray(given).item()) if given is not None else -2) if n.opset >= 20 else n.get("axis", 1)
    axis %= rank_of(x)
    if axis == rank_of(x) - 1:
        raise ValueError("its axis is the last one, which holds the parts of complex numbers")
    length, inverse, half = n.array(1, "dft_length"), bool(n.get("inverse")), bool(n.get("onesided"))
    size = shape_of(x)[axis] if length is None else int(np.asarray(length).item())
    if inverse and half:
        y = spectrum.inverse_real(pair, axis, size if length is not None else 2 * (shape_of(x)[axis] - 1))
        return relay.expand_dims(relay.divide(y, c.scalar(shape_of(y)[axis], y)), rank_of(y))
    pair = spectrum.padded(pair, axis, size)
    if half and pair[1] is None:
        return _together(spectrum.real_spectrum(pair[0], axis))
    out = spectrum.transform(pair, axis, inverse)
    if half:
        out = tuple(c.part(v, axis, 0, size // 2 + 1) for v in out)
    if inverse:
        out = tuple(relay.divide(v, c.scalar(size, v)) for v in out)
    return _together(out)


@converter("STFT")
def _stft(n, signal):
    window = n.input(2)
    step, length = n.array(1, "frame_step"), n.array(3, "frame_length")
    step = int(np.asarray(step).item())
    size = int(np.asarray(length).item()) if length is not None else shape_of(window)[0]
    pair = _pair(signal) if rank_of(signal) == 3 else (signal, None)
    frames = (shape_of(pair[0])[1] - size) // step + 1
    at = array(arange(frames).reshape(-1, 1) * step + arange(size), "int32")
    pair = tuple(None if v is None else relay.take(v, at, axis=1) for v in pair)
    if window is not None:
        pair = tuple(None if v is None else relay.multiply(v, c.as_dtype(window, dtype_of(v))) for v in pair)
    if pair[1] is None and n.get("onesided", 1):
        return _together(spectrum.real_spectrum(pair[0], 2))
    return _together(spectrum.transform(pair, 2))
