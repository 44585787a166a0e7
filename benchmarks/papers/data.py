"""The data sets of the papers: from a folder, from a cache, or from their public pages.

They are looked for in ``../shared/data`` beside the project, then in a cache (``$EVERYFOLD_DATA``,
by default ``~/.cache/everyfold``), then on the public page, from where they go to the cache.
Whatever the origin, the sha256 of a set of LIBSVM's is that of its numbers, in the order of its
rows; of the benchmark of Rätsch et al. it is that of the file that is downloaded.
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import io
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from sklearn.datasets import load_svmlight_file

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"
LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
RAETSCH = (
    "https://github.com/tdiethe/gunnar_raetsch_benchmark_datasets/raw/master/benchmarks.mat",
    "47c19e4bc4716edc4077cfa5ea61edf4d02af4ec51a0ecfe035626ae8b561c75",
)
PAGES = {
    "libsvm/australian": f"{LIBSVM}/binary/australian_scale",
    "libsvm/heart": f"{LIBSVM}/binary/heart_scale",
    "libsvm/ionosphere": f"{LIBSVM}/binary/ionosphere_scale",
    "libsvm/breast-cancer": f"{LIBSVM}/binary/breast-cancer_scale",
    "libsvm/diabetes": f"{LIBSVM}/binary/diabetes_scale",
    "libsvm/fourclass": f"{LIBSVM}/binary/fourclass_scale",
    "libsvm/german.numer": f"{LIBSVM}/binary/german.numer_scale",
    "libsvm/liver-disorders": f"{LIBSVM}/binary/liver-disorders_scale",
    "libsvm/sonar": f"{LIBSVM}/binary/sonar_scale",
    "libsvm/a2a": f"{LIBSVM}/binary/a2a",
    "libsvm/bodyfat": f"{LIBSVM}/regression/bodyfat_scale",
    "libsvm/housing": f"{LIBSVM}/regression/housing_scale",
    "libsvm/triazines": f"{LIBSVM}/regression/triazines_scale",
    "libsvm/mpg": f"{LIBSVM}/regression/mpg_scale",
    "libsvm/pyrim": f"{LIBSVM}/regression/pyrim_scale",
    "libsvm/eunite2001": f"{LIBSVM}/regression/eunite2001",
    "libsvm/mg": f"{LIBSVM}/regression/mg_scale",
    "libsvm/cpusmall": f"{LIBSVM}/regression/cpusmall_scale",
    "libsvm/abalone": f"{LIBSVM}/regression/abalone_scale",
    "libsvm/space_ga": f"{LIBSVM}/regression/space_ga_scale",
    "libsvm/energy_heating": (
        "https://raw.githubusercontent.com/sorenfyhn/ridge-regression/HEAD/data/ENB2012_data.csv"
    ),
}
NUMBERS = {
    "libsvm/australian": "725c085b48c4fa39442d98b8a85af7eafa7c83e2664b2bd06cd0dda975965f44",
    "libsvm/heart": "0de56c67c64083b20e7cae43bd2a549498eed20911b48172494d0acac62f47f9",
    "libsvm/ionosphere": "d2b8e723a194ffb2b89e9fcb127169cece8a702344587991c8b7ac37b52e74cf",
    "libsvm/breast-cancer": "519fefb7a05dac4333a7853e85b7ff38a1dc58588383bc471d7126a1dac48e3d",
    "libsvm/diabetes": "1896ecc0dbfb4a07c2dbfb19332c841d76f2bb691c5198e7f8f22ac37da3169d",
    "libsvm/fourclass": "1fb50fec9f381368d3b204b97e878a18f99476570cc4abc6ea2871332c6a2e48",
    "libsvm/german.numer": "aad73d210b59cbe3eb84cceac600bf3ed8a2918dd68205affb441d4ce50fee01",
    "libsvm/liver-disorders": "28c58500050aee249791fe3d4d1696ae50ae08e41234a592af0bc8a3bcca81f0",
    "libsvm/sonar": "a0a34c402149ecb35cd04430feed69707e8f8fd06b79628ae8cf069965fa12ac",
    "libsvm/a2a": "3cde8146ec8b4503f9b2cbe9aa8891f52603ad174bd453ecfad8d9e5e2d098ad",
    "libsvm/bodyfat": "b0599fd16a5da689a9c76aec31dae9a1d2b854f5352e7ddaad7918cdf043d153",
    "libsvm/housing": "6781924a803c60d474b7ec5885b14c5038dcca03711b495afa4271a26cc93d39",
    "libsvm/triazines": "53f09778c06082f0c957458f6ceca714e1d905ad2a500d968332d30a7df76745",
    "libsvm/mpg": "fcd86fee6c53627003d1c7a38ed844c5d646a91d249933f532e17e4a318cb447",
    "libsvm/pyrim": "31230b8068613266476dd7ccf0aeb8b0f66663d3b46c0edf36600899208841c2",
    "libsvm/eunite2001": "701944bd58d5ccd5ea43ea077f4b5352e142d054bfd540d45a14b4f27726e42a",
    "libsvm/mg": "5123ea1a099033ed309822d8b2f71689948e83b14f73968de11eaa243a8de45d",
    "libsvm/cpusmall": "bfd66aeefb279f176588d9beb2a45ed30757b068ec9ff575486fb2863399b016",
    "libsvm/abalone": "3efbc8c3783b62c1ce8b3f8340566006e07b1ba692230cc731872b5c642dd44e",
    "libsvm/space_ga": "474a69e123b96f1d2e08c5613d6c322b9d0906268e445a8b35888fa8acb32a34",
    "libsvm/energy_heating": "e4e5aa01d223560a788024f7b47176f4d690b30c15ed82580fe3bee74f392350",
}
TWO_CLASSES = {name for name, page in PAGES.items() if "/binary/" in page}


class DataUnavailable(RuntimeError):
    """A data set is in no folder, and its public page did not give it."""


@dataclass(frozen=True)
class Numbers:
    """A data set: rows, targets, and published partitions (zero-based) if it has them."""

    X: np.ndarray
    y: np.ndarray
    train: np.ndarray | None = None
    test: np.ndarray | None = None

    @property
    def digest(self) -> str:
        """The sha256 of rows and targets."""
        found = hashlib.sha256()
        for part in (self.X, self.y):
            found.update(np.ascontiguousarray(part, dtype="<f8") + 0.0)
        return found.hexdigest()


@functools.lru_cache(maxsize=4)
def load(name: str) -> Numbers:
    """The data set ``"libsvm/heart"`` or ``"raetsch/thyroid"``, checked.

    Raises
    ------
    DataUnavailable
        With the places that were tried, and what to do.
    """
    tried = []
    for folder in (FOLDER, cache()):
        for suffix, read in ((".svm.gz", _from_libsvm), (".npz", _from_arrays)):
            path = folder / f"{name}{suffix}"
            if path.is_file():
                return _checked(name, read(path), str(path))
        tried.append(str(folder / name))
    try:
        return _download(name)
    except DataUnavailable as error:
        raise DataUnavailable(
            f"{name} is not at {' or '.join(tried)}, and {error}; put the file into one of these "
            "folders, or set EVERYFOLD_DATA to a folder that has it"
        ) from error


def is_available(name: str) -> bool:
    """Whether a data set is in the folder or in the cache."""
    folders = (FOLDER, cache())
    return any((at / f"{name}{end}").is_file() for at in folders for end in (".svm.gz", ".npz"))


def cache() -> Path:
    """Where downloaded sets are kept."""
    return Path(os.environ.get("EVERYFOLD_DATA") or Path.home() / ".cache" / "everyfold")


def _from_libsvm(path: Path | io.BytesIO) -> Numbers:
    X, y = load_svmlight_file(str(path) if isinstance(path, Path) else path)
    return Numbers(X.toarray(), y)


def _from_arrays(path: Path) -> Numbers:
    with np.load(path) as file:
        parts = [file[key] if key in file.files else None for key in ("train_idx", "test_idx")]
        return Numbers(file["X"], file["y"].astype(float), *parts)


def _checked(name: str, numbers: Numbers, origin: str) -> Numbers:
    wanted = NUMBERS.get(name)
    if wanted is not None and numbers.digest != wanted:
        raise DataUnavailable(
            f"{origin} has other numbers than the set that was used here (sha256 "
            f"{numbers.digest[:12]}… instead of {wanted[:12]}…, shape {numbers.X.shape})"
        )
    return numbers


def _download(name: str) -> Numbers:
    if name.startswith("raetsch/"):
        numbers = _from_matlab(name, _whole_benchmark())
    elif name in PAGES:
        numbers = _checked(name, _parse(name, fetch(PAGES[name])), PAGES[name])
    else:
        raise DataUnavailable(f"no public page of {name!r} is known")
    _keep(cache() / f"{name}.npz", numbers)
    return numbers


def _parse(name: str, content: bytes) -> Numbers:
    if PAGES[name].endswith(".csv"):
        table = np.genfromtxt(io.BytesIO(content), delimiter=",", skip_header=1)
        return Numbers(table[:, :8], table[:, 8])
    try:
        numbers = _from_libsvm(io.BytesIO(content))
    except ValueError as error:
        raise DataUnavailable(f"{PAGES[name]} is no file of LIBSVM's format: {error}") from error
    if name not in TWO_CLASSES:
        return numbers
    return Numbers(numbers.X, np.where(numbers.y == numbers.y.max(), 1.0, -1.0))


def _whole_benchmark() -> bytes:
    url, wanted = RAETSCH
    path = cache() / "raetsch" / "benchmarks.mat"
    content = path.read_bytes() if path.is_file() else fetch(url)
    found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        path.unlink(missing_ok=True)
        raise DataUnavailable(f"{url} has sha256 {found[:12]}… instead of {wanted[:12]}…")
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, content)
    return content


def _from_matlab(name: str, content: bytes) -> Numbers:
    """One set of the re-packaged benchmark: unique patterns, and partitions from one."""
    key = {"diabetes": "diabetis"}.get(name.split("/")[1], name.split("/")[1]).replace("-", "_")
    found = loadmat(io.BytesIO(content), variable_names=[key], simplify_cells=True)
    if key not in found:
        raise DataUnavailable(f"{RAETSCH[0]} has no set {key!r}")
    entry = found[key]
    return Numbers(entry["x"], entry["t"].ravel(), entry["train"] - 1, entry["test"] - 1)


def _keep(path: Path, numbers: Numbers) -> None:
    parts = {"train_idx": numbers.train, "test_idx": numbers.test}
    held = io.BytesIO()
    np.savez_compressed(
        held, X=numbers.X, y=numbers.y, **{k: v for k, v in parts.items() if v is not None}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, held.getvalue())


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)


def fetch(url: str, *, attempts: int = 3, timeout: float = 30.0, pause: float = 2.0) -> bytes:
    """What a public page holds; tries again after everything but a refusal.

    Parameters
    ----------
    url : str
    attempts : int
    timeout : float
        Seconds for a single attempt, from the first byte of the question to the last of the answer.
    pause : float
        Seconds before the second attempt; they double.
    """
    for attempt in range(attempts):
        try:
            return _read(url, timeout)
        except urllib.error.HTTPError as error:
            reason = f"it answers {error.code} {error.reason}"
            error.close()
            if error.code < 500:
                break
        except (OSError, http.client.HTTPException) as error:
            reason = f"{type(error).__name__}: {error}"
        if attempt + 1 < attempts:
            time.sleep(pause * 2**attempt)
    raise DataUnavailable(f"{url} could not be read after {attempt + 1} attempts ({reason})")


def _read(url: str, timeout: float) -> bytes:
    end = time.monotonic() + timeout
    content = bytearray()
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        while block := answer.read1(1 << 16):
            content += block
            if time.monotonic() > end:
                raise TimeoutError(f"{len(content)} bytes in {timeout:g} s")
        expected = answer.headers["Content-Length"]
    if expected is not None and len(content) != int(expected):
        raise http.client.IncompleteRead(bytes(content), int(expected) - len(content))
    return bytes(content)
