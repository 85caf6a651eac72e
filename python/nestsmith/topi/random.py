"""Random numbers from a generator that is data: Threefry (J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3; 2011).

A generator is a vector of ten uint64::

    [0:4] key   [4:7] path   [7] counter   [8:10] one bit: the place of the path that is written next

Splitting appends a 0 or a 1 to the path; drawing numbers moves the counter on. Where the path or the counter is full, the key becomes the
hash of both. The same generator gives the same numbers on any device.
"""

from .. import te, tir
from . import elemwise, reduction
from .scan import cumsum
from .transform import expand_dims
from .util import COMM_REDUCE, as_const_int, c_compute, injective, position, prod

_U64 = "uint64"
# Rotations of the two pairs in each of eight rounds, for four words of 64 bits; every four rounds the key is added.
_ROTATE = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_ROUNDS, _PARITY = 20, 0x1BD11BDAA9FC1A22
_TOP = 1 << 63


def _u(v):
    """A literal of 64 bits without a sign."""
    return tir.const(v, _U64) if v < _TOP else tir.shift_left(tir.const(v >> 1, _U64), tir.const(1, _U64)) + tir.const(v & 1, _U64)


def _rotated(x, by):
    return tir.bitwise_or(tir.shift_left(x, _u(by)), tir.shift_right(x, _u(64 - by)))


def _pick(i, values):
    out = values[-1]
    for k in reversed(range(len(values) - 1)):
        out = tir.Select(tir.EQ(i, k), values[k], out)
    return out


def _hash(key, counter, n, name):
    """[n, 4] words: the counters ``counter(i, w)`` enciphered with the four words ``key(w)``."""

    def subkey(w):
        if w < 4:
            return key(w)
        return tir.bitwise_xor(tir.bitwise_xor(tir.bitwise_xor(_u(_PARITY), key(0)), tir.bitwise_xor(key(1), key(2))), key(3))

    words = [lambda i, w=w: counter(i, w) + subkey(w) for w in range(4)]
    state = te.compute((n,), lambda i: tuple(w(i) for w in words), name=f"{name}_begin")
    for group in range(_ROUNDS // 4):

        def rounds(i, state=state, group=group):
            x = [s(i) for s in state]
            for r in range(4):
                first, second = _ROTATE[(4 * group + r) % 8]
                x[0] = x[0] + x[1]
                x[1] = tir.bitwise_xor(_rotated(x[1], first), x[0])
                x[2] = x[2] + x[3]
                x[3] = tir.bitwise_xor(_rotated(x[3], second), x[2])
                x[1], x[3] = x[3], x[1]
            injected = [v + subkey((group + 1 + w) % 5) for w, v in enumerate(x)]
            injected[3] = injected[3] + _u(group + 1)
            return tuple(injected)

        state = te.compute((n,), rounds, name=f"{name}_rounds")
    return injective([n, 4], lambda i, w: _pick(w, [s(i) for s in state]), name)


def _fresh(gen, name):
    """The four words of a key that stands for the key and the path of ``gen``."""
    return _hash(lambda w: gen(w), lambda i, w: gen(4 + w), 1, name)


def threefry_generate(gen, out_shape):
    """Random numbers of 64 bits.

    Parameters
    ----------
    gen : te.Tensor [10]
        A generator, uint64.
    out_shape : tuple of int

    Returns
    -------
    (te.Tensor, te.Tensor)
        The generator for what is drawn next, and the numbers, uint64.
    """
    shape = [as_const_int(s) for s in out_shape]
    n = prod(shape)
    blocks = -(-n // 4)
    fresh = _fresh(gen, "T_threefry_key")
    zero, last = _u(0), gen(7)
    over = last > _u(2**64 - 1) - _u(n)  # the counter would pass its end: a place of the path, or another key, begins anew
    no_path = tir.EQ(tir.bitwise_or(gen(8), gen(9)), zero)

    def word(i):
        key = tir.Select(no_path, _pick(i, [fresh(0, w) for w in range(4)]), gen(te.min(i, 3)))
        path = tir.Select(no_path, zero, tir.bitwise_or(gen(te.min(te.max(i, 4), 5)), gen(te.min(te.max(i + 4, 8), 9))))
        place = tir.Select(no_path, tir.Select(tir.EQ(i, 8), _u(_TOP), zero), _next_place(gen, i))
        full = _pick(i, [key, key, key, key, path, path, gen(6), zero, place, place])
        return te.if_then_else(over, full, gen(i))

    base = injective([10], word, "T_threefry_base")

    def counter(i, w):
        if w < 3:
            return base(4 + w)
        return base(7) + i.astype(_U64) * _u(4)

    numbers = _hash(lambda w: base(w), counter, blocks, "T_threefry")
    out = injective(shape, lambda *ax: _element(numbers, ax, shape), "T_threefry_generate")
    after = injective([10], lambda i: base(i) + tir.Select(tir.EQ(i, 7), _u(n), zero), "T_threefry_next")
    return after, out


def _element(numbers, ax, shape):
    flat = position(ax, shape)
    return numbers(te.indexdiv(flat, 4), te.indexmod(flat, 4))


def _next_place(gen, i):
    """Words 8 and 9 with the bit one place further."""
    one = _u(1)
    high = tir.shift_right(gen(8), one)
    low = tir.bitwise_or(tir.shift_right(gen(9), one), tir.shift_left(gen(8), _u(63)))
    return tir.Select(tir.EQ(i, 8), high, low)


def threefry_split(gen):
    """Two generators whose numbers have nothing to do with each other nor with those of ``gen``, which is not to be used any more."""
    fresh = _fresh(gen, "T_threefry_split_key")
    zero, no_path = _u(0), tir.EQ(tir.bitwise_or(gen(8), gen(9)), _u(0))

    def base_word(i):
        key = _pick(te.min(i, 3), [fresh(0, w) for w in range(4)])
        new = _pick(i, [key, key, key, key, zero, zero, zero, zero, _u(_TOP), zero])
        return te.if_then_else(no_path, new, gen(i))

    base = injective([10], base_word, "T_threefry_split_base")

    def half(bit):
        def word(i):
            path = tir.bitwise_or(base(te.min(te.max(i, 4), 5)), base(te.min(te.max(i + 4, 8), 9))) if bit else base(i)
            return _pick(i, [base(i)] * 4 + [path, path, base(i), zero, _next_place(base, i), _next_place(base, i)])

        return injective([10], word, f"T_threefry_split_{'right' if bit else 'left'}")

    return half(0), half(1)


def threefry_test_wrapping(target, device):
    """Whether sums of uint64 wrap on a target: they do on all of this package's."""
    del target, device
    return True


def uniform(gen, low, high, out_shape, out_dtype):
    """Numbers from ``low`` to below ``high`` (tensors without dimensions), all equally likely.

    Returns
    -------
    (te.Tensor, te.Tensor)
        The generator for what is drawn next, and the numbers, float32 or float64.
    """
    if out_dtype not in ("float32", "float64"):
        raise ValueError(f"uniform: out_dtype is float32 or float64, not {out_dtype}")
    bits, digits = (32, 23) if out_dtype == "float32" else (64, 52)
    after, raw = threefry_generate(gen, out_shape)
    word = f"uint{bits}"

    def f(*ax):
        v = raw(*ax).astype(word)
        one = tir.const(127 << 23, word) if bits == 32 else _u(1023 << 52)
        fraction = tir.bitwise_or(tir.shift_right(v, tir.const(bits - digits, word)), one)
        u = tir.reinterpret(out_dtype, fraction) - tir.const(1.0, out_dtype)
        return u * (high() - low()) + low()

    return after, injective(out_shape, f, "T_uniform")


def normal(gen, mean, scale, out_shape, out_dtype):
    """Numbers of a normal distribution (G. Box and M. Muller, 1958); ``mean`` and ``scale``: tensors without dimensions."""
    shape = [as_const_int(s) for s in out_shape]
    n = prod(shape)
    zero, one = elemwise.scalar_const(0.0, out_dtype), elemwise.scalar_const(1.0, out_dtype)
    after, u = uniform(gen, zero, one, (2, n), out_dtype)

    def f(*ax):
        flat = position(ax, shape)
        r = te.sqrt(tir.const(-2.0, out_dtype) * te.log(tir.const(1.0, out_dtype) - u(0, flat)))
        return r * te.cos(tir.const(6.283185307179586, out_dtype) * u(1, flat)) * scale() + mean()

    return after, injective(shape, f, "T_normal")


def multinomial(gen, probs, num_samples):
    """Which class is drawn, ``num_samples`` times, where each is as likely as ``probs``, [..., classes], says: weights, of which negative ones
    count as 0. Returns (generator for what is drawn next, int32 [..., num_samples])."""
    lead, classes = [as_const_int(s) for s in probs.shape[:-1]], as_const_int(probs.shape[-1])
    weight = injective(probs.shape, lambda *ax: te.max(probs(*ax), tir.const(0, probs.dtype)), "T_weights")
    total = expand_dims(reduction.sum(weight, -1), -1)
    running = cumsum(weight, -1)
    zero, one = elemwise.scalar_const(0.0, probs.dtype), elemwise.scalar_const(1.0, probs.dtype)
    after, u = uniform(gen, zero, one, (*lead, num_samples), probs.dtype)
    k = te.reduce_axis((0, classes - 1), "k")  # the last class takes what is left

    def f(*ax):
        return te.sum((running(*ax[:-1], k) <= u(*ax) * total(*ax[:-1], 0)).astype("int32"), axis=k)

    return after, c_compute([*lead, num_samples], f, "T_multinomial", COMM_REDUCE)


