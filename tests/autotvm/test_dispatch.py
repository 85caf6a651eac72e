"""Which configuration a template gets: contexts, logs, reference logs."""

import io
import pathlib

import pytest
from logs import MALI, record

from nestsmith import autotvm
from nestsmith.autotvm import ConfigSpace, record as records, tophub
from nestsmith.autotvm.task import (
    ApplyConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    DispatchContext,
    FallbackConfigEntity,
    clear_fallback_cache,
)
from nestsmith.target import Target

WORKLOAD = records.decode(record())[0].task.workload
ANY = "dense_small_batch.gpu"


def ask(target=MALI, workload=WORKLOAD):
    return DispatchContext.current.query(Target(target), workload)


def cost(target=MALI, workload=WORKLOAD):
    found = ask(target, workload)
    return None if found.is_fallback else found.cost


def of(task):
    return (task, *WORKLOAD[1:])


# ---- the stack ----


def test_contexts_are_a_stack():
    outer, inner = ApplyConfig("outer"), ApplyHistoryBest(None)
    with outer:
        assert ask() == "outer"
        with inner:
            assert ask() == "outer"  # the inner one has no answer
            inner.update(Target(MALI), WORKLOAD, cfg := ConfigSpace())
            assert ask() is cfg and cfg.cost == 0
        assert ask() == "outer"
        outer.update(Target(MALI), WORKLOAD, "other")
        assert ask() == "other" and outer.workload == WORKLOAD
    with pytest.raises(KeyError), inner:
        raise KeyError
    assert ask().is_fallback


def test_fallback_is_kept_until_it_is_cleared(caplog):
    DispatchContext.warning_messages.clear()
    first = ask(workload=of("test.once"))
    assert first.is_fallback and ask(workload=of("test.once")) is first
    assert [r.message.split(" A fallback")[0] for r in caplog.records] == [
        f"Cannot find config for target={MALI}, workload={of('test.once')}."
    ]
    with ApplyHistoryBest(None):
        clear_fallback_cache(Target(MALI), of("test.once"))
    assert ask(workload=of("test.once")) is not first and len(caplog.records) == 1


def test_fallback_is_silent_where_that_is_asked_for(caplog, monkeypatch):
    monkeypatch.setattr(autotvm.GLOBAL_SCOPE, "silent", True)
    assert ask(workload=of("test.silent")).is_fallback and not caplog.records


# ---- logs ----


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(record(cost=0.2, index=1) + record(cost=0.1, index=2) + record(cost=0.01, index=3, error=4))
    return path


def test_history_takes_whatever_a_log_is_given_as(log, tmp_path):
    pairs = list(records.load_from_file(log))
    (tmp_path / "b.log").write_text(record(cost=0.05, index=9))
    other = tmp_path / "b.log"
    for given, best in [
        (str(log), 0.1), (log, 0.1), (pairs, 0.1), (iter(pairs), 0.1), (pairs[0], 0.2), ([log, str(other)], 0.05),
        ([pairs, [[iter(pairs)], other]], 0.05), (None, None), ([], None), ([None, [log]], 0.1),
        (records.load_from_file(log), 0.1), (pathlib.Path(log), 0.1), (io.StringIO(log.read_text()), 0.1),
    ]:  # fmt: skip
        with autotvm.apply_history_best(given):
            assert cost() == best
    with open(log) as f, autotvm.apply_history_best(f):
        assert cost() == 0.1
    with pytest.raises(TypeError, match="records is 7; it must be a log file or pairs"):
        autotvm.apply_history_best(7)
    with pytest.raises(FileNotFoundError):
        autotvm.apply_history_best("nothing.log")


def test_history_needs_a_target(log):
    with autotvm.apply_history_best(log), pytest.raises(RuntimeError, match="Need a target context"):
        DispatchContext.current.query(None, WORKLOAD)


def test_history_matches_models_and_keys(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(
        record(target="cuda -model=a", task="x", cost=0.3) + record(target="cuda -model=b", task="x", cost=0.1)
        + record(target="cuda", task="x", cost=0.2) + record(target="llvm -device=arm_cpu", task="x", cost=0.4)
    )  # fmt: skip
    with autotvm.apply_history_best(path):
        assert cost("cuda -model=a", of("x")) == 0.3  # its own, though others are faster
        assert cost("cuda -model=c -arch=sm_90", of("x")) == cost("cuda", of("x")) == 0.1
        assert cost("llvm -device=arm_cpu", of("x")) == cost("llvm", of("x")) == 0.4
        assert cost("opencl", of("x")) is None  # nothing in common but being a GPU


def test_what_all_gpus_share_is_for_tasks_of_all_gpus(tmp_path, caplog):
    path = tmp_path / "a.log"
    path.write_text(record(target="cuda", task=ANY, cost=0.3) + record(target="cuda", task="conv.cuda", cost=0.3))
    with caplog.at_level("INFO"), autotvm.apply_history_best(path) as history:
        assert cost(MALI, of(ANY)) == 0.3 and "comes from another device, cuda" in caplog.text
        assert cost(MALI, of("conv.cuda")) is None and cost("cuda", of("conv.cuda")) == 0.3
        history.update(Target("cuda"), of("y.cuda"), ConfigSpace())
        assert cost("cuda", of("y.cuda")) == 0 and cost(MALI, of("y.cuda")) is None
        assert cost("llvm", of("y.cuda")) is None


def test_the_device_of_a_record_is_its_model(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(
        record(cost=0.3, index=1, extra={"device": "Mali-G76"}) + record(cost=0.1, index=2, extra={"device": "Mali-T860"})
    )
    with autotvm.apply_history_best(path):
        assert cost(f"{MALI} -model=Mali-G76") == 0.3 and cost() == 0.1


def test_history_tells_of_templates_that_are_not_there(log, caplog):
    log.write_text(record(task="tutorial/nobody") * 2 + record(task="tutorial/nobody2"))
    autotvm.apply_history_best(log)
    assert "3 of 3 records are of templates that nobody has registered" in caplog.text
    assert "tutorial/nobody, tutorial/nobody2" in caplog.text


def test_records_of_a_graph(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(record(cost=0.1, index=1) + record(cost=0.2, index=2) + record(task="other", cost=0.3))
    with ApplyGraphBest(str(path)):
        assert [cost(), cost()] == [0.1, 0.2]
        with pytest.raises(ValueError, match="record 3 of the graph is for"):
            cost()
        assert cost(workload=of("other")) == 0.3
        assert cost() == 0.2 and cost(workload=of("other")) == 0.3  # by workload, afterwards
        assert isinstance(ask(workload=of("third")), FallbackConfigEntity)


def test_a_fixed_configuration():
    @autotvm.template("test/fixed")
    def t(n):
        cfg = autotvm.get_config()
        cfg.define_knob("k", [5, 6])
        x = autotvm.task.task.te.placeholder((n,))
        y = autotvm.task.task.te.compute((n,), lambda i: x[i] + 1.0)
        return autotvm.task.task.te.create_schedule(y.op), [x, y]

    task = autotvm.create("test/fixed", (4,), "llvm")
    with autotvm.apply_fixed_config([task], "test/fixed"):
        assert ask("llvm", task.workload)["k"].val == 5 and cost("llvm", task.workload) == 1e-6
        with pytest.raises(RuntimeError, match="is of none of the tasks"):
            ask("llvm", of("test/other"))
    with autotvm.apply_fixed_config([task], ["another"]):
        assert cost("llvm", task.workload) == 100000


# ---- reference logs ----


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("NESTSMITH_LOG_DIR", str(tmp_path))
    monkeypatch.delenv("TOPHUB_LOCATION", raising=False)
    (tmp_path / "mali.log").write_text(
        record(target=MALI + " -model=rk3399", cost=0.3, index=1)
        + record(target=MALI + " -model=kirin", cost=0.1, index=2) + record(target=MALI + " -model=kirin", cost=0.2, index=3)
        + record(target=MALI + " -model=kirin", cost=0.2, index=4, error=4)
    )  # fmt: skip
    (tmp_path / "opencl.log").write_text(record(target="opencl", task="x", cost=0.7))
    return tmp_path


def test_reference_logs_of_a_target(hub, monkeypatch):
    with tophub.context("opencl -device=mali"):
        assert cost() == 0.1
    with tophub.context(Target("opencl")):
        assert cost("opencl", of("x")) == 0.7
    with tophub.context("llvm"):
        assert cost("llvm", of("x")) is None
    extra = hub / "extra.log"
    extra.write_text(record(cost=0.05, index=5))
    with tophub.context(["llvm", Target(MALI)], extra_files=[str(extra)]):
        assert cost() == 0.05
    monkeypatch.setenv("TOPHUB_LOCATION", "NONE")
    with tophub.context("opencl -device=mali"):
        assert cost() is None
    assert tophub.load_reference_log("mali", "kirin", WORKLOAD[0]) == []


def test_reference_logs_of_templates(hub, monkeypatch):
    def found(*args):
        return [res.costs[0] for _, res in tophub.load_reference_log(*args)]

    assert found("mali", "rk3399", WORKLOAD[0]) == [0.3]
    assert found("mali", "unheard", WORKLOAD[0]) == [0.1, 0.2]  # the model with most records
    assert found("mali", "rk3399", "other") == found("arm_cpu", "rk3399", WORKLOAD[0]) == []
    (hub / "mali.log").write_text(record(target=MALI + " -model=rk3399", cost=0.9))
    assert found("mali", "rk3399", WORKLOAD[0]) == [0.9]
    (hub / "elsewhere").mkdir()
    (hub / "elsewhere" / "mali.log").write_text(record(target=MALI + " -model=rk3399", cost=0.8))
    monkeypatch.setenv("TOPHUB_LOCATION", str(hub / "elsewhere"))
    assert found("mali", "rk3399", WORKLOAD[0]) == [0.8]


def test_fallback_from_reference_logs(hub):
    cfg = FallbackConfigEntity()
    for name, n in (("tile_co", 128), ("tile_oh", 28), ("tile_ow", 28)):
        cfg.define_split(name, n, num_outputs=3)
    cfg.define_annotate("ann_reduce", [3, 3], policy="try_unroll")
    cfg.fallback_with_reference_log(tophub.load_reference_log("mali", "rk3399", WORKLOAD[0]))
    assert cfg["tile_co"].size == [32, 2, 2] and cfg["tile_ow"].size == [1, 7, 4]
    assert cfg["ann_reduce"].anns == ["unroll", "none"]
