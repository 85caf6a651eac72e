"""The table of operators is that of the code."""

import importlib.util
import pathlib

SCRIPT = pathlib.Path(__file__).parents[2] / "docs" / "operators.py"


def test_the_table_of_operators_is_up_to_date():
    spec = importlib.util.spec_from_file_location("operators", SCRIPT)
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    assert page.PAGE.read_text() == page.table(), "run: python docs/operators.py"
    assert "| no |" not in page.table()  # every operator becomes a kernel or vanishes
