"""Files from the network, kept in a folder: for scripts that ask for models and images."""

import logging
import os
import pathlib
import shutil
import tempfile
import time
import urllib.parse
import urllib.request

__all__ = ["TEST_DATA_ROOT_PATH", "download", "download_testdata"]

LOG = logging.getLogger("nestsmith.download")
TEST_DATA_ROOT_PATH = pathlib.Path(os.environ.get("TEST_DATA_ROOT_PATH") or pathlib.Path.home() / ".nestsmith_test_data")
_SECONDS = 60.0


def download(url, path, overwrite=False, size_compare=False, retries=3):
    """Fetches a file, unless it is there.

    Parameters
    ----------
    url : str
        http, https or file.
    path : str or Path
        Where it is written, in one piece once it is whole.
    overwrite : bool
        Also where it is there.
    size_compare : bool
        Also where it is there with another size than the server says.
    retries : int
        How often it is tried again.

    Raises
    ------
    OSError
        If it cannot be had.
    ValueError
        For a URL of another kind.
    """
    path = pathlib.Path(path).expanduser().resolve()
    if urllib.parse.urlsplit(url).scheme not in ("http", "https", "file"):
        raise ValueError(f"url is {url!r}; it begins with http, https or file")
    if path.is_file() and not overwrite and not (size_compare and path.stat().st_size != _size(url)):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in range(retries, -1, -1):
        try:
            with urllib.request.urlopen(url, timeout=_SECONDS) as source, tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as out:
                shutil.copyfileobj(source, out)
            os.replace(out.name, path)
            return
        except OSError as e:
            if not left:
                raise OSError(f"cannot download {url}: {e}; put the file at {path} yourself") from e
            LOG.warning("downloading %s failed (%s), %d more tries", url, e, left)
            time.sleep(0.1)


def _size(url):
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=_SECONDS) as head:
        return int(head.headers.get("Content-Length", -1))


def download_testdata(url, relpath, module=None, overwrite=False):
    """The path of a file below `TEST_DATA_ROOT_PATH` (its folder `module`), downloaded if it is not there; see `download`.

    Raises ValueError if `relpath` leads out of this folder.
    """
    folder = TEST_DATA_ROOT_PATH.joinpath(*(module.split("/") if isinstance(module, str) else module or ()))
    path = (folder / relpath).resolve()
    if not path.is_relative_to(TEST_DATA_ROOT_PATH.resolve()):
        raise ValueError(f"relpath is {relpath!r}; it is a path below {folder}")
    download(url, path, overwrite=overwrite)
    return str(path)
