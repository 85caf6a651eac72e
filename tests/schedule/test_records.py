"""Record lines: byte-exact writing, reading of older formats, replay of public logs, errors that name the place."""

import gzip
import json
from pathlib import Path

import pytest
from networks_of_2021 import dag_of_2021

import helpers
from nestsmith import _core

DATA = Path(__file__).parent.parent / "data"


def lines(name):
    raw = gzip.open(DATA / name, "rt").read() if name.endswith(".gz") else (DATA / name).read_text()
    return [x + "\n" for x in raw.splitlines() if x and x[0] not in "# "]


def rewrite(line):
    r = list(_core.record_parse(line))
    if r[2] is None:
        r[2] = [0] * 8
    r[2] = tuple(r[2])
    return _core.record_text(*r)


def test_current_records_come_back_byte_for_byte():
    log = lines("tvm-resnet-18-NHWC-B1-cuda.json.gz")
    assert len(log) == 24
    assert [rewrite(x) for x in log] == log


@pytest.mark.parametrize("name", ["tvm-resnet-50-NHWC-B1-llvm.json.gz", "tvm-old-formats.json"])
def test_older_records_are_read_and_rewritten_in_the_current_format(name):
    for line in lines(name):
        old, new = json.loads(line), json.loads(rewrite(line))
        assert new["i"][1] == old["i"][1] and new["r"] == old["r"] and new["v"] == "v0.6"
        task, n = new["i"][0], len(old["i"][0])
        assert len(task) == 6 and task[:2] == old["i"][0][:2] and task[5] == []
        assert task[3] == (old["i"][0][3] if n > 3 else "") and task[4] == (old["i"][0][4] if n > 4 else 0)


def test_cuda_log_replays():
    dags = {d.workload_key(): d for d in helpers.resnet18_tasks("p", "pool")}
    for line in lines("tvm-resnet-18-NHWC-B1-cuda.json.gz"):
        r = _core.record_parse(line)
        state = _core.State(dags[r[0]], r[6])
        assert state.steps() == r[6]
        assert "threadIdx.x" in str(state.infer_bounds())


RECORD1 = """\
Placeholder: p0, p1
blockIdx.x nn.0@yy.0@xx.0@ff.0@ (0,784)
  vthread nn.1@yy.1@xx.1@ff.1@ (0,4)
    threadIdx.x nn.2@yy.2@xx.2@ff.2@ (0,32)
      conv2d_nhwc.local auto_unroll: 512
      for rc.0 (0,16)
        for ax0@ax1@ax2@ax3@.0.0 (0,4)
          threadIdx.x ax0@ax1@ax2@ax3@.0.1 (0,32)
            p1.shared = ...
        threadIdx.x ax0@ax1@ax2@ax3@.0.1 (0,32)
          pad_temp.shared = ...
        for rc.1 (0,2)
          for xx_c.3 (0,2)
            for rc.2 (0,2)
              conv2d_nhwc.local = ...
      for xx.3 (0,2)
        conv2d_nhwc = ...
"""


def test_one_record_in_full():
    r = _core.record_parse(lines("tvm-resnet-18-NHWC-B1-cuda.json.gz")[1])
    dag = helpers.resnet18_task(0, "p", "pool")
    assert dag.workload_key() == r[0]
    assert str(_core.State(dag, r[6]).infer_bounds()) == RECORD1
    early = _core.State(dag, json.dumps(json.loads(r[6])[:20])).infer_bounds().stages()
    assert [x[4] for x in early[4][3]] == [1, 1, 4, 1] and [x[4] for x in early[2][3]] == [1, 1, 2, 4]


def test_llvm_log_replays():
    log = lines("tvm-resnet-50-NHWC-B1-llvm.json.gz")
    assert len(log) == 26
    for line in log:
        r = _core.record_parse(line)
        state = _core.State(dag_of_2021(json.loads(r[0])[1:]), r[6])
        assert state.steps() == r[6]
        assert "(None)" not in str(state.infer_bounds())


GOOD = json.loads(
    '{"i": [["[\\"k\\"]", "llvm", [8, 64, 64, 0, 0, 0, 0, 0], "", 1, []], [[], [["SP", 2, 0, 64, [4, 8], 1]]]],'
    ' "r": [[1.25e-05], 0, 0.31, 1700000000], "v": "v0.6"}'
)


def broken(edit):
    r = json.loads(json.dumps(GOOD))
    edit(r)
    return json.dumps(r)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda r: r["i"][1][1][0].__setitem__(0, "XY"), r"i\[1\]\[1\]\[0\]: unknown step"),
        (lambda r: r["i"][1][1][0].pop(), r"i\[1\]\[1\]\[0\]: wrong number"),
        (lambda r: r["i"][1][1][0].__setitem__(4, [0]), r"i\[1\]\[1\]\[0\]: split lengths"),
        (lambda r: r["i"][1][1][0].__setitem__(4, [1.5]), r"i\[1\]\[1\]\[0\]\[4\]\[0\]: an integer"),
        (lambda r: r["i"][1][1][0].__setitem__(5, True), r"i\[1\]\[1\]\[0\]\[5\]"),
        (lambda r: r["i"][1].__setitem__(0, [1]), r"i\[1\]: the list of stages must be empty"),
        (lambda r: r["i"][0].__setitem__(2, [1]), r"i\[0\]\[2\]: hardware parameters"),
        (lambda r: r["i"].__setitem__(0, ["k"]), r"i\[0\]: a task has"),
        (lambda r: r["r"].pop(), "r: "),
        (lambda r: r.pop("i"), "required"),
    ],
)
def test_malformed_records_name_the_place(edit, message):
    assert json.loads(rewrite(json.dumps(GOOD))) == GOOD
    assert json.loads(rewrite(json.dumps({**GOOD, "x": {"cause": "none"}}))) == GOOD  # extensions are ignored
    with pytest.raises(ValueError, match=message):
        _core.record_parse(broken(edit))


@pytest.mark.parametrize("text", ["", "{", "[]", "nonsense", '{"i": 1, "r": 2, "v": ""}', "[" * 5000])
def test_no_record_at_all(text):
    with pytest.raises(ValueError, match="malformed record"):
        _core.record_parse(text)
