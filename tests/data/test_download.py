"""Files are found in the promised order; what is downloaded is checked before it gets its name."""

import gzip
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coterie.data.download import KNOWN, REMOTES, Remote, cache_directory, fetch, locate
from coterie.errors import InputError

DEAD = "http://127.0.0.1:9/"  # the discard port: nobody answers


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address and directory of a web server on this machine."""
    root = tmp_path / "www"
    root.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=root)) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}/", root
        web.shutdown()
        thread.join()


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("unpack", ["", "gzip", "inner/data.csv"])
def test_fetch_unpacks_checks_and_keeps(server: tuple[str, Path], tmp_path: Path, unpack: str) -> None:
    url, root = server
    content = b"a,b\n1,2\n"
    packed = {"": content, "gzip": gzip.compress(content)}.get(unpack)
    if packed is None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(unpack, content)
        packed = buffer.getvalue()
    (root / "file").write_bytes(packed)
    remote = Remote((DEAD, url + "absent", url + "file"), sha(content), unpack)  # mirrors are tried in turn
    kept = fetch("data.csv", remote, tmp_path / "cache")
    assert kept.read_bytes() == content
    (root / "file").unlink()
    assert fetch("data.csv", remote, tmp_path / "cache") == kept  # without the network


def test_wrong_bytes_are_refused_and_leave_nothing(server: tuple[str, Path], tmp_path: Path) -> None:
    url, root = server
    (root / "file").write_bytes(b"tampered")
    with pytest.raises(InputError, match=f"sent the wrong file: sha256 is {sha(b'tampered')}"):
        fetch("data.csv", Remote((url + "file",), sha(b"honest")), tmp_path / "cache")
    with pytest.raises(InputError, match="cannot be unpacked"):
        fetch("data.csv", Remote((url + "file",), sha(b"honest"), "gzip"), tmp_path / "cache")
    with pytest.raises(InputError, match="cannot be unpacked"):
        fetch("data.csv", Remote((url + "file",), sha(b"honest"), "member"), tmp_path / "cache")
    assert not list(tmp_path.glob("cache/*"))


def test_offline_says_what_was_tried_and_what_to_do(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REMOTES, "heart", {"processed.va.data": Remote((DEAD,), "0" * 64)})
    with pytest.raises(InputError) as caught:
        locate("heart")
    message = str(caught.value)
    for part in ("'heart' not found", "COTERIE_DATA is not set", str(nowhere), DEAD, "heart_disease.csv.gz", "set CO"):
        assert part in message
    assert "\n" not in message
    assert not nowhere.exists()


def test_search_order(nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server) -> None:
    url, root = server
    (root / "remote.csv").write_bytes(b"remote")
    remotes = {"diabetic_data.csv": Remote((url + "remote.csv",), sha(b"remote"))}
    monkeypatch.setitem(REMOTES, "diabetes", remotes)
    assert nowhere == cache_directory()
    assert locate("diabetes") == {"diabetic_data.csv": nowhere / "diabetic_data.csv"}
    own, explicit = tmp_path / "own", tmp_path / "explicit"
    for place in (own, explicit):
        place.mkdir()
        (place / "diabetes130.csv.gz").write_bytes(b"a user's copy")
    monkeypatch.setenv("COTERIE_DATA", str(own))
    assert locate("diabetes") == {"diabetes130.csv.gz": own / "diabetes130.csv.gz"}
    for path in (explicit, explicit / "diabetes130.csv.gz"):
        assert locate("diabetes", path) == {"diabetes130.csv.gz": explicit / "diabetes130.csv.gz"}
    monkeypatch.delenv("COTERIE_DATA")
    (nowhere / "diabetic_data.csv").write_bytes(b"rotten")
    with pytest.raises(InputError, match=r"is damaged .*: delete it and try again"):
        locate("diabetes")


def test_explicit_path_must_hold_the_data(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent", tmp_path / "adult_train.csv.gz"):
        with pytest.raises(InputError, match=r"does not hold the data set 'adult': expected adult_train.csv.gz, "):
            locate("adult", path)
    for name in (*KNOWN["adult"], "other.csv"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"other.csv does not hold"):
        locate("adult", tmp_path / "other.csv")
