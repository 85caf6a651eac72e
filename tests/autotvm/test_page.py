"""The page of template tuning: its Python runs and prints what it says."""

import pathlib
import re

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "autotvm.md").read_text()


def test_the_page_runs(capsys):
    env = {}
    for kind, block in re.findall(r"```(python|text)\n(.*?)```", PAGE, re.S):
        if kind == "python":
            exec(block, env)
        else:
            assert capsys.readouterr().out == block
    assert env["schedule"][env["arguments"][2]].op.name == "C"
