"""A plugin of pytest: ``pytest_plugins = ["nestsmith.testing.plugin"]`` in a conftest.py.

Tests that take ``target`` or ``dev`` run for each target that is there; fixtures of `testing.parameters` take their values together.
"""

from ..runtime import device
from . import utils


def pytest_configure(config):
    """Registers the marks of features."""
    utils.Feature.registered = True
    for name, feature in utils.Feature.all.items():
        config.addinivalue_line("markers", f"{name}: needs {feature.long_name}")


def _targets_of(function):
    failing = getattr(function, "tvm_known_failing_targets", ())
    out = [t for t in utils._known_targets() if t.split()[0] not in getattr(function, "tvm_excluded_targets", ())]
    params = utils.target_params(out)
    xfail = utils._pytest().mark.xfail
    return [p if t.split()[0] not in failing else utils._pytest().param(t, marks=[*p.marks, xfail]) for t, p in zip(out, params)]


def pytest_generate_tests(metafunc):
    """Gives ``target`` its values, and groups of parameters theirs."""
    own = {a for m in metafunc.definition.iter_markers("parametrize") for a in str(m.args[0]).replace(",", " ").split()}
    if "target" in metafunc.fixturenames and "target" not in own and not metafunc._arg2fixturedefs.get("target"):
        metafunc.parametrize("target", _targets_of(metafunc.function), scope="session")
    groups: dict = {}
    for name, found in metafunc._arg2fixturedefs.items():
        func = found[-1].func
        if hasattr(func, "parametrize_group"):
            groups.setdefault(func.parametrize_group, []).append((name, func))
    for members in groups.values():
        rows = list(zip(*(f.parametrize_values for _, f in members)))
        rows = [r[0] for r in rows] if len(members) == 1 else rows
        metafunc.parametrize(",".join(n for n, _ in members), rows, indirect=True, ids=members[0][1].parametrize_ids)


def pytest_collection_modifyitems(config, items):
    """Marks the cases that `skip_parameterizations` and `xfail_parameterizations` name."""
    for item in items:
        case = item.name.partition("[")[2].rstrip("]")
        for wanted, mark in getattr(getattr(item, "function", None), "nestsmith_marked", ()):
            if wanted == case:
                item.add_marker(mark)


@utils._pytest().fixture
def dev(target):
    """The device of the target."""
    return device(str(target).split()[0], 0)
