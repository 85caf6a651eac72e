"""Every public name of TVM v0.14 is there, or its error names the way."""

import importlib

import pytest

from nestsmith import _absent

WAY = " is not there yet: "


def _module(full):
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError as e:
        assert str(e).startswith("nestsmith.") and WAY in str(e), (full, str(e))
        return None


def test_every_name():
    missing = 0
    for full in sorted(_absent.names()):
        package, _, name = full.rpartition(".")
        where = _module(package) if package else None
        if where is None:
            continue
        try:
            getattr(where, name)
        except (AttributeError, ModuleNotFoundError) as e:
            said = str(e).removeprefix(full + WAY)
            assert said != str(e) and len(said) > 20, (full, str(e))
            missing += 1
    assert 500 < missing < len(_absent.names())


def test_ways_are_of_parts_that_can_be_imported_or_are_told_of():
    assert all(_absent.hint(f"{where}") for where in _absent.WAYS)
    assert not _absent.hint("nestsmith.relay.conv3d_tarnspose") and not _absent.hint("numpy.array")


@pytest.mark.parametrize("statement", ["from nestsmith.contrib import cutlass", "import nestsmith.relay.qnn.op.foo", "from nestsmith import hexagon"])
def test_imports(statement):
    with pytest.raises(ModuleNotFoundError, match=WAY):
        exec(statement, {})


def test_typing_mistakes_are_told_as_such():
    with pytest.raises(AttributeError, match="^module 'nestsmith.te' has no attribute 'computee'$"):
        importlib.import_module("nestsmith.te").computee  # noqa: B018


def test_finders_of_modules_do_what_python_asks_of_them():
    module = importlib.import_module("nestsmith.topi.cuda.conv2d")
    importlib.invalidate_caches()
    assert module.conv2d_nchw is importlib.import_module("nestsmith.topi.cuda").conv2d_nchw
