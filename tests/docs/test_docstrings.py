"""Docstrings of what users call: there, with their parameters, results and errors, as far as a program can tell.

Public is what `docs/api.md` lists by module. Checked by numpydoc: a docstring exists; parameters in it are those of the
signature, in its order; where it has sections, none of Parameters and Returns is missing. Checked here: every exception
that a function raises by name is named in its docstring, or in that of its class for a constructor.
"""

import ast
import importlib
import inspect
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
MODULES = sorted(set(re.findall(r"automodule:: ([\w.]+)", (ROOT / "docs/api.md").read_text())))
ALWAYS = {"GL08", "PR02", "PR03", "RT02"}  # missing docstring; unknown parameters; wrong order; unclear result
ABSTRACT = {"NotImplementedError"}  # says that a subclass has to do it
WITH_SECTIONS = {"PR01", "RT01", "YD01"}  # parameters or results without description


def definitions(module):
    """(name, syntax tree, class or None) of every public function, method and class of a module."""
    tree = ast.parse(pathlib.Path(module.__file__).read_text())
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node.name, node, None
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for f in node.body:
                if isinstance(f, ast.FunctionDef) and (not f.name.startswith("_") or f.name == "__init__"):
                    yield f"{node.name}.{f.name}", f, node


def look_up(module, name):
    obj = module
    for part in name.split("."):
        obj = inspect.getattr_static(obj, part)
    return obj


def documented(module, name):
    """The docstring, an inherited one included."""
    owner, _, attr = name.rpartition(".")
    obj = look_up(module, name)
    if isinstance(obj, (staticmethod, classmethod)):
        obj = obj.__func__
    doc = inspect.getdoc(obj.fget if isinstance(obj, property) else obj)
    if doc is None and owner:
        doc = inspect.getdoc(getattr(look_up(module, owner), attr, None))
    return doc or ""


def raised(node):
    """Names of the exceptions that the function itself raises."""
    todo, found = list(ast.iter_child_nodes(node)), set()
    while todo:
        x = todo.pop()
        if isinstance(x, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            continue  # raised by something else
        if isinstance(x, ast.Raise) and isinstance(x.exc, ast.Call) and isinstance(x.exc.func, ast.Name):
            found.add(x.exc.func.id)
        todo += ast.iter_child_nodes(x)
    return found - ABSTRACT


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    validate = pytest.importorskip("numpydoc.validate", reason="pip install numpydoc").validate
    module = importlib.import_module(name)
    assert (module.__doc__ or "").strip(), f"{name} has no docstring"
    wrong = []
    for what, node, cls in definitions(module):
        if what not in dir(module) and cls is None:
            continue
        doc = documented(module, what)
        if what.endswith(".__init__"):
            doc += documented(module, cls.name)
        if isinstance(node, ast.FunctionDef):
            lacking = sorted(e for e in raised(node) if e not in doc)
            if lacking:
                wrong.append(f"{what} raises {', '.join(lacking)} and does not say so")
        if what.endswith(".__init__"):
            continue
        if not doc:
            wrong.append(f"{what} has no docstring")
            continue
        own = ast.get_docstring(node)
        if not own:
            continue
        errors = validate(f"{name}.{what}")["errors"]
        sections = re.search(r"^(Parameters|Returns|Raises)\n-+$", own, re.M)
        for code, text in errors:
            if code in ALWAYS or (sections and code in WITH_SECTIONS):
                wrong.append(f"{what}: {code} {text}")
    assert not wrong, f"{name}:\n" + "\n".join(wrong)


def test_the_api_page_lists_what_users_call():
    for name in (
        "auto_scheduler.search_task", "auto_scheduler.task_scheduler", "auto_scheduler.measure_record", "relay.build_module",
        "auto_scheduler.dispatcher", "auto_scheduler.display", "auto_scheduler.log_tools", "contrib.graph_executor",
        "runtime.ndarray", "runtime.device", "runtime.module", "target", "transform", "te.schedule", "driver",
    ):
        assert f"nestsmith.{name}" in MODULES
