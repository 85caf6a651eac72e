"""The 24 tasks of ResNet-18 against reference texts, keys, operation counts and analyses."""

import gzip
import json
import pathlib

import pytest

import helpers

DATA = json.loads(gzip.open(pathlib.Path(__file__).parents[1] / "data" / "dags.json.gz").read())
NAMES = {"tasks": (), "tasks_v014": ("p", "pool")}


@pytest.mark.parametrize("which", NAMES)
@pytest.mark.parametrize("index", range(24))
def test_text_and_key(which, index):
    dag, ref = helpers.resnet18_task(index, *NAMES[which]), DATA[which][index]
    assert dag.text() == ref["text"]
    assert dag.text(simple=True) == ref["simple_text"]
    assert dag.workload_key() == ref["key"]
    assert helpers.RESNET18[index][0] == ref["weight"]


@pytest.mark.parametrize("index", range(24))
def test_analysis(index):
    dag, ref = helpers.resnet18_task(index), DATA["analysis"][index]
    assert dag.flop_ct == ref["flop"]
    stages = dag.stages()
    assert len(stages) == len(ref["stages"]) == len(dag.ops)
    for mine, want in zip(stages, ref["stages"]):
        mine["common_outer_iterators"] = {str(k): v for k, v in mine["common_outer_iterators"].items()}
        for key in want.keys() - {"stage"}:
            assert mine[key] == want[key], (mine["name"], key)


def test_long_lines_are_shortened_for_people():
    dag = helpers.resnet18_task(6)
    for shown, full in zip(str(dag).split("\n"), dag.text().split("\n")):
        assert shown == (full if len(full) <= 256 else full[:128] + " ..(OMITTED).. " + full[-128:])
    assert "(OMITTED)" in str(dag)
