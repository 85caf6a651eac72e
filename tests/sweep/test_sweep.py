"""A sample of the sweep (run.py): a network per type and way. `make test-full` runs all of it."""

import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("expecttest", reason="PyTorch's database of samples needs it")

import torch  # noqa: E402
from sweep_rows import ROWS  # noqa: E402
from sweep_values import difference  # noqa: E402

HERE = pathlib.Path(__file__).parent
SAMPLE = {
    "float32": "cummax std softmax grid_sampler_2d median index_select searchsorted nn.functional.elu special.ndtr",
    "int32": "sub bitwise_left_shift amax cummax index_select",
}


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", SAMPLE)
def test_sample(kind):
    # in a process of its own: the sweep forks, and PyTorch's threads of this one are not there in its children
    ops = ",".join(SAMPLE[kind].split())
    program = [sys.executable, str(HERE / "run.py"), "--ops", ops, "--types", kind, "--ways", "folded,default,drawn0", "--most", "1"]
    r = subprocess.run(program, capture_output=True, text=True, timeout=900)
    assert r.returncode == 0, r.stdout + r.stderr[-2000:]
    assert int(re.search(r"^(\d+) checks", r.stdout, re.M)[1]) > 60


def test_rows_are_those_of_the_page():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "numerics.md").read_text()
    table = page[page.index("## Edges") :]
    rows = re.findall(r"^\| ([^|]+?) \|", table[: table.find("\n## ", 5) if "\n## " in table[5:] else None], re.M)
    assert rows[1:] == list(ROWS) and len(ROWS) <= 12


def test_the_budget():
    x = torch.tensor([1.0, -0.0, float("nan"), float("inf"), 1e-45])
    wide = x.double()
    ok = lambda g: difference(g, x, wide, False)  # noqa: E731
    assert ok(x.clone()) is None
    wrong = ((0, 1.000001, "error"), (1, 0.0, "sign of zero"), (2, 0.0, "NaN"), (3, 3e38, "NaN"), (3, float("nan"), "NaN"), (4, 1e-40, "error"))
    for k, bad, word in wrong:
        g = x.clone()
        g[k] = bad
        assert ok(g)[0] == (k,) and word in ok(g)[1]
    assert ok(x.double())[0] is None
    n = torch.tensor([1, 2])
    assert difference(n + 1, n, None, False)[1] == "integers differ"
