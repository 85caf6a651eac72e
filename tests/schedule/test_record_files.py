"""Log files: reading, appending, the best record, distilling."""

import gzip
import json
from pathlib import Path

import pytest

from nestsmith import auto_scheduler as asch
from nestsmith.auto_scheduler import log_tools, measure_record as mr, workload_keys

DATA = Path(__file__).parent.parent / "data"
LOG = gzip.open(DATA / "tvm-resnet-18-NHWC-B1-cuda.json.gz", "rt").read()


@pytest.fixture
def log(tmp_path):
    f = tmp_path / "in.json"
    f.write_text("# comment\n\n" + LOG)
    return str(f)


def line(cost, key='["k", [4, 8]]', target="cuda -keys=cuda,gpu", error_no=0, steps="[]"):
    costs = cost if isinstance(cost, list) else [cost]
    return json.dumps(
        {"i": [[key, target, [-1, 16, 64, 49152, 1 << 30, 1024, 8, 32], "", 0, []], [[], json.loads(steps)]],
         "r": [costs, error_no, 1.0, 1], "v": "v0.6"}
    ) + "\n"


def write(tmp_path, *lines):
    f = tmp_path / "log.json"
    f.write_text("".join(lines))
    return str(f)


def test_reading_and_appending(log, tmp_path):
    pairs = list(asch.load_records(log))
    assert len(pairs) == 24
    inp, res = pairs[1]
    assert inp.task.workload_key.startswith('["2d10de66') and inp.task.target.kind.name == "cuda"
    assert inp.task.hardware_params.max_threads_per_block == 1024 and res.error_no == 0
    assert len(inp.state.transform_steps) == 37
    out = tmp_path / "deep" / "er" / "out.json"
    callback = asch.RecordToFile(str(out))
    for i in range(0, 24, 10):
        callback.callback(None, [p[0] for p in pairs[i : i + 10]], [p[1] for p in pairs[i : i + 10]])
    body = [x + "\n" for x in LOG.splitlines() if x and x[0] not in "# "]
    assert out.read_text() == "".join(body)
    inputs, results = asch.RecordReader(log).read_lines(max_lines=5, skip_lines=2)
    assert len(inputs) == len(results) == 5 and inputs[0].task.workload_key == pairs[2][0].task.workload_key
    assert len(asch.RecordReader(log).read_lines()[0]) == 24
    text = mr.dump_record_to_string(*pairs[3])
    assert mr.dump_record_to_string(*mr.load_record_from_string(text)) == text


def test_broken_lines_are_skipped_and_named(tmp_path, caplog):
    f = write(tmp_path, line(1.0), "{}\n", line(2.0), line(3.0)[:-30])
    with caplog.at_level("INFO", "auto_scheduler"):
        costs = [r.costs[0] for _, r in asch.load_records(f)]
    assert costs == [1.0, 2.0]
    assert "1 broken lines were skipped (line 2): malformed record" in caplog.text and "last line is incomplete" in caplog.text
    asch.save_records(f, *map(list, zip(*asch.load_records(f))))
    assert [r.costs[0] for _, r in asch.load_records(f)] == [1.0, 2.0, 1.0, 2.0], "appending ends the cut-off line first"
    caplog.clear()
    assert list(asch.RecordReader(str(tmp_path / "none.json"))) == [] and "does not exist" in caplog.text


def test_best_record(tmp_path):
    f = write(
        tmp_path, line(1e10, error_no=4), line([3.0, 5.0], steps='[["CI", 1]]'), line(4.0),
        line(1.0, target="llvm -keys=cpu"), line(0.5, key='["k", [2, 8]]'), line(0.1, key='["k", [3, 8]]'),
        line(0.1, key='["other", [4, 8]]'),
    )
    inp, res = asch.load_best_record(f, '["k", 4, 8]', "cuda")
    assert sum(res.costs) / len(res.costs) == 4.0
    assert inp.state.transform_steps == [("CI", 1)], "the earlier one wins a tie"
    assert asch.load_best_record(f, '["k", [4, 8]]')[1].costs[0] == 1.0
    inp, res = asch.load_best_record(f, '["k", [4, 8]]', "cuda", include_compatible=True)
    assert res.costs[0] == 0.5, "half the size counts twice its time"
    assert asch.load_best_record(f)[1].costs[0] == 0.1
    assert asch.load_best_record(f, '["k", [5, 8]]', "cuda") == (None, None)


def test_keys():
    assert workload_keys.decode_workload_key('["h", [1, 2], 3]') == workload_keys.decode_workload_key('["h", 1, [2, 3]]') == ("h", (1, 2, 3))
    assert workload_keys.decode_workload_key("plain") == ("plain", None)
    factor = workload_keys.calc_workload_dis_factor
    assert factor(("h", (8, 0, "x")), ("h", (2, 0, "x"))) == 4
    for wanted, recorded in ((("h", (8,)), ("h", (3,))), (("h", (0,)), ("h", (1,))), (("h", ()), ("g", ()))):
        assert factor(wanted, recorded) == float("inf")


def test_distilling(tmp_path):
    f = write(
        tmp_path, line(2.0), line(1.0, steps='[["CI", 1]]'), line(1.0, steps='[["CI", 2]]'),
        line(9.0, key='["k2", [1]]'), line(3.0, key='["k", [5]]'), line(1e10, key='["k3", [1]]', error_no=1),
    )
    log_tools.main(["-i", f])
    out = Path(f + ".best.json")
    kept = [json.loads(x) for x in out.read_text().splitlines()]
    assert [x["i"][0][0] for x in kept] == ['["k", [4, 8]]', '["k", [5]]', '["k2", [1]]']
    assert kept[0]["i"][1][1] == [["CI", 1]]
    mr.distill_record_file(write(tmp_path, line(0.5)), str(out))
    kept = [json.loads(x) for x in out.read_text().splitlines()]
    assert len(kept) == 3 and kept[0]["r"][0] == [0.5], "the output file's records take part"
