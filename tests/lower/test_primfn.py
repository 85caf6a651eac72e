"""Texts of lowered functions: the listings of the te tutorial and two programs of our own."""


import pytest

import nestsmith
from nestsmith import te


def text(s, args):
    return str(nestsmith.lower(s, args, simple_mode=True))


def body(s, args):
    """Without the header, whose order the tutorial's listings do not fix."""
    return text(s, args).split("} {\n", 1)[1]


def test_symbolic_reduction_two_guards():
    n = te.var("n")
    x = te.placeholder((n, 12), name="X")
    q = te.reduce_axis((0, 12), name="q")
    y = te.compute((n,), lambda r: te.sum(x[r, q], axis=q), name="Y")
    s = te.create_schedule(y.op)
    s[y].split(y.op.axis[0], factor=8)
    s[y].split(q, factor=5)
    assert text(s, [x, y]) == """\
primfn(X_1: handle, Y_1: handle) -> ()
  attr = {"global_symbol": "main", "tir.noalias": True}
  buffers = {X: Buffer(X_2: Pointer(float32), float32, [n: int32, 12], [stride: int32, stride_1: int32], type="auto"),
             Y: Buffer(Y_2: Pointer(float32), float32, [n], [stride_2: int32], type="auto")}
  buffer_map = {X_1: X, Y_1: Y} {
  for (r.outer: int32, 0, floordiv((n + 7), 8)) {
    for (r.inner: int32, 0, 8) {
      if @tir.likely((((r.outer*8) + r.inner) < n), dtype=bool) {
        Y_2[(((r.outer*8) + r.inner)*stride_2)] = 0f32
      }
      if @tir.likely((((r.outer*8) + r.inner) < n), dtype=bool) {
        for (q.outer: int32, 0, 3) {
          for (q.inner: int32, 0, 5) {
            if @tir.likely((((q.outer*5) + q.inner) < 12), dtype=bool) {
              Y_2[(((r.outer*8) + r.inner)*stride_2)] = ((float32*)Y_2[(((r.outer*8) + r.inner)*stride_2)] + \
(float32*)X_2[((((r.outer*8) + r.inner)*stride) + (((q.outer*5) + q.inner)*stride_1))])
            }
          }
        }
      }
    }
  }
}
"""


def register_chain():
    p = te.placeholder((96,), name="P")
    q = te.compute((96,), lambda t: p[t] * p[t], name="Q")
    r = te.compute((96,), lambda t: q[t] + 1.0, name="R")
    s = te.create_schedule(r.op)
    to, ti = s[r].split(r.op.axis[0], factor=32)
    s[r].bind(to, te.thread_axis("blockIdx.x"))
    s[r].bind(ti, te.thread_axis("threadIdx.x"))
    s[q].compute_at(s[r], ti)
    return s, p, q, r


def test_gpu_intermediate_in_a_register():
    s, p, _, r = register_chain()
    assert text(s, [p, r]) == """\
primfn(P_1: handle, R_1: handle) -> ()
  attr = {"global_symbol": "main", "tir.noalias": True}
  buffers = {P: Buffer(P_2: Pointer(float32), float32, [96], []),
             R: Buffer(R_2: Pointer(float32), float32, [96], [])}
  buffer_map = {P_1: P, R_1: R} {
  attr [IterVar(blockIdx.x: int32, (nullptr), "ThreadIndex", "blockIdx.x")] "thread_extent" = 3;
  attr [Q: Pointer(float32)] "storage_scope" = "local";
  allocate(Q, float32, [1]);
  attr [IterVar(threadIdx.x: int32, (nullptr), "ThreadIndex", "threadIdx.x")] "thread_extent" = 32 {
    Q[0] = ((float32*)P_2[((blockIdx.x*32) + threadIdx.x)]*(float32*)P_2[((blockIdx.x*32) + threadIdx.x)])
    R_2[((blockIdx.x*32) + threadIdx.x)] = ((float32*)Q[0] + 1f32)
  }
}
"""


def test_listed_intermediate_is_an_argument():
    s, p, q, r = register_chain()
    t = text(s, [p, q, r])
    assert "allocate" not in t
    assert "Q_2[((blockIdx.x*32) + threadIdx.x)] = " in t


def elementwise(*names, shape=None):
    shape = shape or tuple(te.var(v) for v in names)
    a = te.placeholder(shape, name="A")
    f = (lambda i: a[i]) if len(shape) == 1 else (lambda i, j: a[i, j])
    return a, te.compute(shape, f, name="B")


def structure(s, args):
    """Loops and guards only."""
    lines = [x.strip() for x in body(s, args).splitlines()]
    return [x.replace(": int32", "") for x in lines if x.startswith(("for", "if"))]


def test_tile():
    a, b = elementwise("m", "n")
    s = te.create_schedule(b.op)
    s[b].tile(b.op.axis[0], b.op.axis[1], x_factor=10, y_factor=5)
    assert structure(s, [a, b]) == [
        "for (i.outer, 0, floordiv((m + 9), 10)) {", "for (j.outer, 0, floordiv((n + 4), 5)) {",
        "for (i.inner, 0, 10) {",
        "if @tir.likely((((i.outer*10) + i.inner) < m), dtype=bool) {", "for (j.inner, 0, 5) {",
        "if @tir.likely((((j.outer*5) + j.inner) < n), dtype=bool) {"]


def test_tile_and_fuse():
    a, b = elementwise("m", "n")
    s = te.create_schedule(b.op)
    _, _, xi, yi = s[b].tile(b.op.axis[0], b.op.axis[1], x_factor=10, y_factor=5)
    s[b].fuse(xi, yi)
    assert structure(s, [a, b]) == [
        "for (i.outer, 0, floordiv((m + 9), 10)) {", "for (j.outer, 0, floordiv((n + 4), 5)) {",
        "for (i.inner.j.inner.fused, 0, 50) {",
        "if @tir.likely((((i.outer*10) + floordiv(i.inner.j.inner.fused, 5)) < m), dtype=bool) {",
        "if @tir.likely((((j.outer*5) + floormod(i.inner.j.inner.fused, 5)) < n), dtype=bool) {"]


def test_tile_and_reorder():
    a, b = elementwise("m", "n")
    s = te.create_schedule(b.op)
    xo, yo, xi, yi = s[b].tile(b.op.axis[0], b.op.axis[1], x_factor=10, y_factor=5)
    s[b].reorder(xi, yo, xo, yi)
    assert [x.split(",")[0] for x in structure(s, [a, b])] == [
        "for (i.inner", "for (j.outer", "for (i.outer", "if @tir.likely((((i.outer*10) + i.inner) < m)", "for (j.inner",
        "if @tir.likely((((j.outer*5) + j.inner) < n)"]


def test_split_nparts():
    a, b = elementwise("m")
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[0], nparts=32)
    assert structure(s, [a, b]) == ["for (i.outer, 0, 32) {", "for (i.inner, 0, floordiv((m + 31), 32)) {",
                                    "if @tir.likely(((i.inner + (i.outer*floordiv((m + 31), 32))) < m), dtype=bool) {"]


def test_divisible_symbolic_split_has_no_guard():
    m = te.var("m")
    a, b = elementwise(shape=(m * 8,))
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[0], factor=8)
    assert structure(s, [a, b]) == ["for (i.outer, 0, m) {", "for (i.inner, 0, 8) {"]


def stages():
    m = te.var("m")
    a = te.placeholder((m,), name="A")
    b = te.compute((m,), lambda i: a[i] + 1, name="B")
    c = te.compute((m,), lambda i: b[i] * 2, name="C")
    return te.create_schedule(c.op), a, b, c


def test_two_root_stages():
    s, a, b, c = stages()
    assert body(s, [a, b, c]) == """\
  for (i: int32, 0, m) {
    B_2[(i*stride_1)] = ((float32*)A_2[(i*stride)] + 1f32)
  }
  for (i_1: int32, 0, m) {
    C_2[(i_1*stride_2)] = ((float32*)B_2[(i_1*stride_1)]*2f32)
  }
}
"""


def test_compute_at_and_inline():
    s, a, b, c = stages()
    s[b].compute_at(s[c], c.op.axis[0])
    assert body(s, [a, b, c]) == """\
  for (i: int32, 0, m) {
    B_2[(i*stride_1)] = ((float32*)A_2[(i*stride)] + 1f32)
    C_2[(i*stride_2)] = ((float32*)B_2[(i*stride_1)]*2f32)
  }
}
"""
    s, a, b, c = stages()
    s[b].compute_inline()
    assert "C_2[(i*stride_2)] = (((float32*)A_2[(i*stride)] + 1f32)*2f32)" in body(s, [a, b, c])


def test_missing_argument_is_named():
    s, _, b, c = stages()
    with pytest.raises(ValueError, match="A"):
        nestsmith.lower(s, [b, c])
