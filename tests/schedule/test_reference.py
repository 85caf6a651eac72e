"""States sampled by the reference: replaying the steps must give its text, its Python schedule and the steps again."""

import json
import random
import re

import pytest
from peer_dags import dag_of, peer_tasks

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


def minima(text):
    return [m[1] for m in re.finditer(r"\((.*),([^,()]*)\)$", text, re.M)]


def test_minima_have_the_same_values():
    """Ours use that a loop stays below its extent: compared where all variables are below every modulus."""
    rng, seen = random.Random(0), 0
    for task in peer_tasks():
        dag = dag_of(task["key"], tuple(task["stages"]))
        for s in task["states"]:
            text = str(_core.State(dag, json.dumps(s["steps"])).infer_bounds())
            for ours, theirs in zip(minima(text), minima(s["text"])):
                names = set(re.findall(r"[A-Za-z_][\w.]*", ours)) - {"floordiv", "floormod"}
                limit = min([int(v) for v in re.findall(r"% (\d+)", theirs)] or [1000])
                for name in sorted(names, key=len, reverse=True):
                    ours = ours.replace(name, name.replace(".", "_"))
                env = {"floordiv": lambda a, b: a // b, "floormod": lambda a, b: a % b}
                env.update({n.replace(".", "_"): rng.randrange(limit) for n in names})
                assert eval(ours, env) == eval(theirs, env), (ours, theirs)
                seen += bool(names)
    assert seen > 80
