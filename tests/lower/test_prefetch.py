"""CPU programs ask for the next chunk of large packed weights while they use the present one, and for nothing else."""

import itertools
import pathlib
import re

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import _core, te

CPU = _core.Target("llvm", (4, 64, 64, 0, 0, 0, 0, 0))
# With vectors of 64 bytes all rows of a case are one register tile, and no chunk is used again.
CPUINFO = pathlib.Path("/proc/cpuinfo")
TEXT = "llvm -mcpu=x86-64-v3" if CPUINFO.exists() and "avx512f" in CPUINFO.read_text() else "llvm"
LINE = 64


def dense(rows, outs, k, wide=32, deep=64, tile=4, dtype="float32", packed=True, parallel=True):
    """rows x k times k x outs, the weights in chunks of `deep` x `wide` that tiles of so many rows use one after the other."""
    a = te.placeholder((rows, k), name="A", dtype=dtype)
    shape = (outs // wide, k // deep, deep, wide) if packed else (k, outs)
    w = te.placeholder(shape, name="W", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")

    def point(i, j):
        return te.sum(a[i, r] * (w[j // wide, r // deep, r % deep, j % wide] if packed else w[r, j]), axis=r)

    c = te.compute((rows, outs), point, name="C")
    s = te.create_schedule(c.op)
    (i, j), _ = c.op.axis, c.op.reduce_axis
    (io, ii), (jo, ji), (ko, ki) = s[c].split(i, tile), s[c].split(j, wide), s[c].split(c.op.reduce_axis[0], deep)
    s[c].reorder(jo, ko, io, ki, ii, ji)
    if parallel:
        s[c].parallel(jo)
    s[c].vectorize(ji)
    return s, [a, w, c]


def text_of(s, args):
    return ns.build(s, args, TEXT, name="prog").get_source()


def requests(source):
    return re.findall(r"__builtin_prefetch\(&.*\);", source)


def values(rng, args):
    a, w, _ = args
    return [rng.integers(-3, 4, [int(n) for n in t.shape]).astype(t.dtype) for t in (a, w)]


def product(x, w):
    if w.ndim == 4:  # (outs, k, deep, wide)
        w = w.transpose(1, 2, 0, 3).reshape(x.shape[1], -1)
    return x.astype("float64") @ w


@pytest.mark.some(12)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("rows, tile, outs, k, wide, deep", [(16, 4, 256, 1024, 32, 64), (7, 4, 320, 1008, 32, 63), (25, 2, 624, 513, 48, 27)])
@pytest.mark.parametrize("parallel", [False, True])
def test_results_are_the_same_bits(dtype, rows, tile, outs, k, wide, deep, parallel):
    s, args = dense(rows, outs, k, wide, deep, tile, dtype, parallel=parallel)
    f = ns.build(s, args, TEXT, name="prog")
    assert requests(f.get_source())
    x, w = values(np.random.default_rng(0), args)
    out = ns.nd.array(np.full((rows, outs), 77, dtype), ns.cpu(0))
    f(ns.nd.array(x, ns.cpu(0)), ns.nd.array(w, ns.cpu(0)), out)
    assert np.array_equal(out.numpy(), product(x, w))


def loops_around(lines, at):
    """(variable, extent) of the loops around a line, outermost first; the parallel one has the extent None."""
    depth, found = len(lines[at]) - len(lines[at].lstrip()), []
    for line in reversed(lines[:at]):
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < depth and line.rstrip().endswith("{"):
            depth = indent
            if m := re.match(r"\s*for \(int32_t (\w+) = 0; \w+ < (\d+);", line):
                found.append((m[1], int(m[2])))
    if m := re.search(r"const int32_t (\w+) = \(int32_t\)ns_i", "\n".join(lines[:at])):
        found.append((m[1], None))
    return found[::-1]


@pytest.mark.parametrize("rows, tile, wide, deep", [(16, 4, 32, 64), (64, 4, 48, 32), (10, 1, 16, 128)])
def test_all_lines_are_asked_for_before_their_turn(rows, tile, wide, deep):
    """While a chunk is used each line of the next one is asked for, and no element is named that the tensor has not."""
    outs, k = 16 * wide, 1024
    s, args = dense(rows, outs, k, wide, deep, tile)
    lines = text_of(s, args).splitlines()
    at = next(i for i, line in enumerate(lines) if "__builtin_prefetch" in line)
    index = re.match(r"\s*const int32_t next = (.*);", lines[at - 1])[1]
    offsets = [int(m) for m in re.findall(r"\[(\d+)\], 0, 2\)", "\n".join(requests("\n".join(lines))))]
    assert len(requests("\n".join(lines))) == len(offsets) + 1
    around = loops_around(lines, at)
    assert [e for _, e in around[:2]] == [None, k // deep]
    inside = [line for line in lines[at:] if line.startswith(" " * (len(lines[at]) - len(lines[at].lstrip())))]
    assert any("for (" in line for line in inside)  # not in the innermost loop
    chunk, size = deep * wide, outs * k
    asked = {}
    for point in itertools.product(*[range(e or outs // wide) for _, e in around]):
        names = dict(zip([v for v, _ in around], point), ns_min_i32=min)
        first = eval(index, names)
        for i in (first + o for o in [0, *offsets]):
            assert 0 <= i < size
            asked.setdefault(point[0] * (k // deep) + point[1], set()).add(i * 4 // LINE)
    for n in range(size // chunk - 1):
        wanted = set(range((n + 1) * chunk * 4 // LINE, (n + 2) * chunk * 4 // LINE))
        assert wanted <= asked[n]
        assert len(asked[n]) <= len(wanted) * 1.5


@pytest.mark.parametrize(
    "why, schedule",
    [
        ("a small tensor", lambda: dense(16, 128, 1024)),
        ("no chunk is used again", lambda: dense(4, 256, 1024)),
        ("chunks that are read at once", lambda: dense(16, 256, 1024, wide=32, deep=16)),
        ("chunks that are gone when their turn comes", lambda: dense(1024, 256, 1024, wide=32, deep=1024)),
        ("too many lines at a time", lambda: dense(8, 256, 1024, wide=32, deep=512)),
        ("not in the order in which they lie", lambda: dense(16, 256, 1024, packed=False)),
    ],
)
def test_nothing_is_asked_for(why, schedule):
    assert not requests(text_of(*schedule())), why


def test_what_the_program_writes_is_not_asked_for():
    s, (a, w, c) = dense(16, 256, 1024)
    v = te.placeholder(w.shape, name="V")
    w = te.compute(w.shape, lambda *i: v(*i) + 1, name="W")
    r = te.reduce_axis((0, 1024), name="k")
    c = te.compute((16, 256), lambda i, j: te.sum(a[i, r] * w[j // 32, r // 64, r % 64, j % 32], axis=r), name="C")
    s = te.create_schedule(c.op)
    (io, ii), (jo, ji), (ko, ki) = s[c].split(c.op.axis[0], 4), s[c].split(c.op.axis[1], 32), s[c].split(c.op.reduce_axis[0], 64)
    s[c].reorder(jo, ko, io, ki, ii, ji)
    assert not requests(text_of(s, [a, v, w, c]))


def test_the_interpreter_takes_it_for_an_address():
    """It is one of the tensor's elements at the end, too, where the last chunk has no next one."""
    s, args = dense(9, 256, 1024, tile=1)
    assert requests(text_of(s, args))
    x, w = values(np.random.default_rng(1), args)
    state = s._core.state(list(args))
    for stage in ("prefetch", "program"):
        got = [x.copy(), w.copy(), np.full((9, 256), 77, "float32")]
        assert _core.interp(state, CPU, got, stage=stage, max_steps=200_000_000)["findings"] == []
        assert np.array_equal(got[2], product(x, w))


@pytest.mark.parametrize("pad", [1, 2, 40])
def test_guarded_reads_of_padding_name_elements_only(pad):
    """Chunks in front of the tensor are read under a condition; what is asked for lies inside."""
    rows, wide = 256, 1024
    a = te.placeholder((rows, wide), name="A")
    p = te.compute(
        (rows + 2 * pad, 6, wide),
        lambda i, j, k: te.if_then_else(te.all(i >= pad, i < rows + pad), a[i - pad, k] + j, te.const(0.0, "float32")),
        name="P",
    )
    s = te.create_schedule(p.op)
    s[p].vectorize(s[p].split(p.op.axis[2], 8)[1])
    assert requests(text_of(s, [a, p]))
    x = np.random.default_rng(2).integers(-3, 4, (rows, wide)).astype("float32")
    got = [x, np.full((rows + 2 * pad, 6, wide), 77, "float32")]
    report = _core.interp(s._core.state([a, p]), CPU, got, stage="program", max_steps=200_000_000)
    assert report["findings"] == []
    assert np.array_equal(got[1][pad:-pad], x[:, None, :] + np.arange(6, dtype="float32")[None, :, None])
