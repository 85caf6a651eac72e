import pytest


@pytest.fixture(autouse=True)
def own_logs(tmp_path, monkeypatch):
    """A directory of tuning logs that is empty at first."""
    monkeypatch.setenv("NESTSMITH_LOG_DIR", str(tmp_path / "logs"))
    return tmp_path / "logs"
