"""The runner of TVM's tests, on a small checkout made here; and the page that it writes."""

import collections
import importlib.util
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("peer_run", ROOT / "tests" / "peer" / "run.py")
run = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run)

TESTS = {
    "tests/python/unittest/test_te_small.py": "import tvm\nimport tvm.testing\nfrom tvm import te\nfrom tvm.testing.autotvm import SEVEN\n"
    "a = tvm.testing.parameter(1, 2)\n"
    "def test_shape(a):\n    assert te.placeholder((a,)).shape == (a,) and SEVEN == 7\n"
    "@tvm.testing.parametrize_targets('llvm', 'hexagon')\ndef test_targets(target, dev):\n    assert target == 'llvm' and dev.exist\n"
    "def test_wrong():\n    assert False\n",
    "tests/python/relay/test_op_level9.py": "from tvm import no_such_thing\ndef test_a(): pass\ndef test_b(): pass\n",
    "python/tvm/testing/autotvm.py": "import tvm as other\nSEVEN = 7\n",
    "python/tvm/topi/testing/__init__.py": "",
}


def test_a_checkout(tmp_path):
    for name, text in TESTS.items():
        (tmp_path / "tvm" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tvm" / name).write_text(text)
    done = subprocess.run([sys.executable, ROOT / "tests" / "peer" / "run.py", tmp_path / "tvm", "--out", tmp_path / "out"], capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert "| relay op levels | 2 | 0 | 0 | 0 % |" in done.stdout, done.stdout
    assert "| unittest te | 4 | 3 | 0 | 75 % |" in done.stdout and "| all | 6 | 3 | 0 | 50 % |" in done.stdout
    assert "unittest/test_te_small.py::test_wrong" in done.stdout
    (tmp_path / "out" / "logs" / "relay_test_op_level9.py.log").unlink()
    command = [sys.executable, run.__file__, tmp_path / "tvm", "--read", tmp_path / "out" / "logs"]
    again = subprocess.run([*command, "--out", tmp_path / "more"], capture_output=True, text=True, check=True).stdout
    assert "| all | 4 | 3 | 0 | 75 % |" in again and "relay" not in again.partition("| Family")[2]
    both = run.merged({"unittest te": collections.Counter(passed=4)}, done.stdout)
    rows = ["| relay op levels | 2 | 0 | 0 | 0 % |", "| unittest te | 4 | 4 | 0 | 100 % |", "| all | 6 | 4 | 0 | 67 % |"]
    assert run.table(both).splitlines()[2:] == rows


def test_the_page_has_the_reasons():
    page = (ROOT / "docs" / "from-tvm.md").read_text()
    assert run.reasons() in page
    assert all(run.differences().values())


def test_renamed():
    text = "import tvm\n    import tvm.testing\nimport tvm as t\nimport tvm.te as q\nfrom tvm.x import y\nimport tvmlike\nx = 'tvm'\n"
    assert run.renamed(text) == (
        "import nestsmith as tvm\n    import nestsmith.testing; import nestsmith as tvm\nimport nestsmith as t\nimport nestsmith.te as q\n"
        "from nestsmith.x import y\nimport tvmlike\nx = 'tvm'\n"
    )
