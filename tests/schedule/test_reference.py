"""States sampled by the reference: replaying the steps must give its text, its Python schedule and the steps again."""

import json
import re

import pytest
from peer import dag_of, peer_tasks

from nestsmith import _core

NETWORKS = sorted({t["network"] for t in peer_tasks()})


def plain(text):
    """Minima that are expressions may be written differently; everything else must be equal."""
    return re.sub(r"\((.*),([^,()]*)\)$", lambda m: f"({m[1] if m[1].isdigit() else '...'},{m[2]})", text, flags=re.M)


@pytest.mark.parametrize("network", NETWORKS)
def test_replay_gives_the_reference_texts(network):
    seen = 0
    for task in peer_tasks():
        if task["network"] != network:
            continue
        dag = dag_of(task["key"], tuple(task["stages"]))
        for s in task["states"]:
            state = _core.State(dag, json.dumps(s["steps"]))
            assert plain(str(state.infer_bounds())) == plain(s["text"]), (task["key"], s["steps"])
            assert state.python() == s["python"]
            assert json.loads(state.steps()) == s["steps"]
            seen += 1
    assert seen >= 16
