"""States and steps on small expressions: texts, bounds, attach map, errors."""

import json

import pytest

from nestsmith import _core, te


def matmul(n, m, k, relu=False):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    if not relu:
        return _core.ComputeDAG([a, b, c])
    d = te.compute((n, m), lambda i, j: te.max(c[i, j], te.const(0.0, "float32")), name="D")
    return _core.ComputeDAG([a, b, d])


def state(dag, steps):
    return _core.State(dag, json.dumps(steps))


TILED = [
    ["SP", 2, 0, 64, [4, 8], 1], ["SP", 2, 3, 128, [2, 16], 1], ["SP", 2, 6, 32, [4], 1],
    ["RE", 2, [0, 3, 1, 4, 6, 2, 7, 5]], ["FSP", 3, 0, 0, 1], ["FSP", 3, 2, 1, 1], ["RE", 3, [0, 2, 1, 3]],
    ["CA", 2, 3, 1], ["FU", 3, [0, 1]], ["AN", 3, 0, 3], ["PR", 2, 0, "auto_unroll_max_step$64"], ["AN", 2, 7, 2],
    ["AN", 3, 2, 2],
]
TILED_TEXT = """\
Placeholder: A, B
parallel i.0@j.0@ (0,8)
  C auto_unroll: 64
  for i.0 (None)
    for j.0 (None)
      for i.1 (None)
        for j.1 (None)
          for k.0 (None)
            for i.2 (None)
              for k.1 (None)
                vectorize j.2 (None)
                  C = ...
  for i.1 (0,32)
    vectorize j.1 (0,32)
      D = ...
"""
TILED_BOUND = """\
Placeholder: A, B
parallel i.0@j.0@ (0,8)
  C auto_unroll: 64
  for i.1 (0,4)
    for j.1 (0,2)
      for k.0 (0,8)
        for i.2 (0,8)
          for k.1 (0,4)
            vectorize j.2 (0,16)
              C = ...
  for i.1 (0,32)
    vectorize j.1 (0,32)
      D = ...
"""


def test_text_before_and_after_bounds():
    s = state(matmul(64, 128, 32, relu=True), TILED)
    assert str(s) == TILED_TEXT
    assert str(s.infer_bounds()) == TILED_BOUND
    assert str(s) == TILED_TEXT, "inference must not change its argument"
    assert json.loads(s.steps()) == TILED
    assert str(s.copy()) == TILED_TEXT


GPU = [
    ["CHW", 2, "local"], ["SP", 2, 0, 64, [1, 8, 2, 1], 1], ["SP", 2, 5, 128, [2, 8, 1, 2], 1],
    ["SP", 2, 10, 32, [4, 1], 1], ["RE", 2, [0, 5, 1, 6, 2, 7, 10, 11, 3, 8, 12, 4, 9]], ["FSP", 3, 0, 1, 3],
    ["FSP", 3, 4, 2, 3], ["RE", 3, [0, 4, 1, 5, 2, 6, 3, 7]], ["CA", 2, 3, 5], ["CHR", 1, "shared", [2]],
    ["CA", 2, 3, 6], ["CHR", 0, "shared", [3]], ["CA", 1, 4, 6],
    ["FU", 5, [0, 1]], ["AN", 5, 0, 5], ["FU", 5, [1, 2]], ["AN", 5, 1, 4], ["FU", 5, [2, 3]], ["AN", 5, 2, 6],
    ["FU", 3, [0, 1]], ["SP", 3, 0, 8, [2], 1], ["AN", 3, 1, 2], ["FFSP", 3, 0, [1, 2], 1, 1], ["AN", 3, 1, 6],
    ["FU", 1, [0, 1]], ["SP", 1, 0, 8, [1], 1], ["AN", 1, 1, 2], ["FFSP", 1, 0, [1, 2], 1, 1], ["AN", 1, 1, 6],
    ["PR", 4, 0, "auto_unroll_max_step$16"],
]
GPU_TEXT = """\
Placeholder: A, B
blockIdx.x i.0@j.0@ (0,16)
  vthread i.1@j.1@ (0,2)
    threadIdx.x i.2@j.2@ (0,64)
      C.local auto_unroll: 16
      for k.0 (0,8)
        threadIdx.x ax0@ax1@.0.1 (0,64)
          vectorize ax0@ax1@.1 (0,2)
            B.shared = ...
        threadIdx.x ax0@ax1@.0.1 (0,64)
          A.shared = ...
        for k.1 (0,4)
          for i_c.3 (0,2)
            for j_c.4 (0,2)
              C.local = ...
      for i.3 (0,2)
        for j.3 (0,2)
          C = ...
"""


def extents(s, stage):
    return [it[4] for it in s.stages()[stage][3]]


def test_shared_caches_before_and_after_binding():
    dag = matmul(64, 128, 32)
    early = state(dag, GPU[:13]).infer_bounds()
    assert extents(early, 1) == [2, 4] and extents(early, 3) == [4, 2]
    assert str(state(dag, GPU).infer_bounds()) == GPU_TEXT


def test_steps_after_inference_continue_the_state():
    dag = matmul(64, 128, 32)
    s = state(dag, GPU[:13]).infer_bounds()
    for step in GPU[13:]:
        s.apply(*step)
    assert json.loads(s.steps()) == GPU
    assert str(s.infer_bounds()) == GPU_TEXT
    s = state(dag, GPU[:13]).infer_bounds()
    s.apply("FU", 3, [0, 1])
    assert extents(s, 3) == [8], "ranges of bound inference stay known"


@pytest.mark.parametrize(
    ("n_split", "expected"),
    [(1, [2, 256]), (2, [2, 4, 64]), (3, [2, 4, 2, 32]), (4, [2, 4, 2, 8, 4]), (5, [2, 4, 2, 8, 4, 1])],
)
def test_follow_split(n_split, expected):
    s = state(matmul(512, 512, 512, relu=True), [["SP", 2, 0, 512, [4, 2, 8, 4], 1], ["FSP", 3, 0, 0, n_split]])
    assert extents(s, 3)[:-1] == expected


def test_split_directions_and_open_lengths():
    dag = matmul(512, 512, 512)
    s = _core.State(dag)
    s.apply("SP", 2, 0, 512, [8, 2], 1)
    s.apply("SP", 2, 3, 512, [32, 8], 0)
    assert extents(s, 2) == [32, 8, 2, 32, 8, 2, 512]
    assert [x[0] for x in s.stages()[2][3]] == ["i.0", "i.1", "i.2", "j.0", "j.1", "j.2", "k"]
    s.apply("SP", 2, 6, 512, [4, None], 1)
    assert extents(s, 2)[6:] == [None, None, None] and not s.concrete
    with pytest.raises(ValueError, match="open"):
        s.infer_bounds()
    with pytest.raises(ValueError, match="open"):
        s.steps()


def test_rfactor_extents_and_names():
    dag = matmul(8, 8, 512)
    for it, axes in ((2, ["i", "j", "k_o", "k_i"]), (3, ["i", "j", "k_i", "k_o"])):
        s = state(dag, [["SP", 2, 2, 512, [16], 1], ["RF", 2, it, 2]])
        st = s.stages()
        assert [x[0] for x in st] == ["A", "B", "C.rf", "C.repl"]
        assert [x[0] for x in st[2][3]] == axes
        assert extents(s, 2) == ([8, 8, 32, 16] if it == 2 else [8, 8, 16, 32])
        assert [x[0] for x in st[3][3]] == ["ax0", "ax1", axes[2] + "_v"]
        assert extents(s.infer_bounds(), 3) == ([8, 8, 32] if it == 2 else [8, 8, 16])
        assert "C_rf = s.rfactor(C, k_" in s.python()


def test_repeated_cache_reads_get_new_names():
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 8), lambda i, j: a[i, j] + b[i, j], name="C")
    s = state(_core.ComputeDAG([a, c]), [["CHR", 0, "shared", [1]], ["CHR", 0, "shared", [3]]])
    assert [x[0] for x in s.stages()] == ["A", "A.d.shared", "A.shared", "B", "C"]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([["AN", 9, 0, 1]], "stage 9 does not exist"),
        ([["AN", 0, 0, 1]], "placeholder"),
        ([["AN", 2, 3, 1]], "3 iterators"),
        ([["AN", 2, 0, 12]], "annotation code"),
        ([["AN", 2, 0, 1], ["AN", 2, 0, 2]], "already carries"),
        ([["FU", 2, [0, 2]]], "consecutive"),
        ([["FU", 2, []]], "empty fuse"),
        ([["RE", 2, [0, 1]]], "all 3 iterators"),
        ([["RE", 2, [0, 1, 1]]], "twice"),
        ([["PR", 2, 0, "loudly"]], "unknown pragma"),
        ([["FSP", 2, 0, 0, 1]], "does not precede"),
        ([["AN", 2, 0, 1], ["FSP", 2, 1, 0, 1]], "not SP"),
        ([["SP", 2, 0, 64, [2], 1], ["FSP", 2, 2, 0, 3]], "n_split 3"),
        ([["SP", 2, 0, 64, [2], 1], ["FFSP", 2, 2, [0], 1, 1]], "level 1"),
        ([["CA", 2, 2, 0]], "inside itself"),
        ([["CI", 2]], "reduction"),
        ([["CHR", 0, "shared", [3]]], "does not read"),
        ([["CHR", 0, "cloud", [2]]], "memory scope"),
        ([["SP", 2, 0, 64, [2], 1], ["CHW", 2, "local"]], "first step"),
        ([["RF", 2, 2, 0]], "follow the split"),
        ([["SP", 2, 0, 64, [2], 1], ["RF", 2, 0, 0]], "not a reduction"),
        ([["CA", 2, 3, 0], ["FU", 3, [0, 1]]], "only the last"),
        ([["CA", 2, 3, 0], ["RE", 3, [1, 0]]], "attached stages"),
    ],
)
def test_invalid_steps_say_why(steps, message):
    with pytest.raises(ValueError, match=message) as e:
        state(matmul(64, 128, 32, relu=True), steps)
    assert str(e.value).startswith(f"step {len(steps) - 1} ({steps[-1][0]}): ")


def test_failed_step_leaves_the_state_alone():
    s = state(matmul(64, 128, 32, relu=True), TILED)
    with pytest.raises(ValueError, match="annotation"):
        s.apply("AN", 2, 0, 99)
    assert str(s) == TILED_TEXT and json.loads(s.steps()) == TILED


def test_attachment_errors_show_up_in_bound_inference():
    dag = matmul(64, 128, 32, relu=True)
    with pytest.raises(ValueError, match="is an output"):
        state(dag, [["CA", 3, 2, 0]]).infer_bounds()
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 8), lambda i, j: b[i, j] * 2.0, name="C")
    d = te.compute((8, 8), lambda i, j: b[i, j] + c[i, j], name="D")
    dag = _core.ComputeDAG([a, d])
    with pytest.raises(ValueError, match="cycle"):
        state(dag, [["CA", 1, 2, 0], ["CA", 2, 1, 0]]).infer_bounds()
    with pytest.raises(ValueError, match="does not enclose its reader"):
        state(dag, [["CA", 1, 2, 0]]).infer_bounds()
