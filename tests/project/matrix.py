"""Run the quick tests on the oldest and the newest versions, on every Python that is found.

``python tests/project/matrix.py build/matrix`` makes an environment for every line of the table in
docs/versions.md, runs the tests there and writes the table. ``--only 3.11`` takes some Pythons, and
keeps the other lines as they are.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "versions.md"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")
HEADER = (
    "| Python | versions | NumPy | SciPy | scikit-learn | numba | quick tests |",
    "|---" * 7 + "|",
)


def find_python(version: str) -> str | None:
    """An interpreter of that version: on the path, of pyenv, or of uv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"{version}.*/bin/python"))]
    if uv := shutil.which("uv"):
        asked = subprocess.run([uv, "python", "find", version], capture_output=True, text=True)
        found.append(asked.stdout.strip())
    return next((python for python in found if python and _is(python, version)), None)


def _is(python: str, version: str) -> bool:
    """Whether it runs, and is of that version; shims may be there without one."""
    say = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", say], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def lowest() -> list[str]:
    """The lowest versions that pyproject.toml allows, any patch of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    bounds = [re.fullmatch(r"([\w-]+)>=([\d.]+)", need) for need in project["dependencies"]]
    return [f"{bound[1]}=={bound[2]}.*" for bound in bounds if bound]


def run(python: str, folder: Path, pins: Sequence[str], tests: Sequence[str]) -> dict[str, str]:
    """Make an environment, run the tests there, and say which versions it has."""
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    inside = str(folder / "bin" / "python")
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    installed = subprocess.run([*pip, "-e", f"{ROOT}[test]", *pins], check=False)
    if installed.returncode:
        return {"outcome": "cannot be installed"}
    show = f"from importlib.metadata import version; print(*map(version, {PACKAGES}))"
    said = subprocess.run([inside, "-c", show], check=True, capture_output=True, text=True)
    has = said.stdout.split()
    command = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    threads = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=threads, capture_output=True, text=True, check=False
    )
    print(done.stdout[-2000:])
    return dict(zip(PACKAGES, has, strict=True)) | {"outcome": _outcome(done.stdout)}


def _outcome(printed: str) -> str:
    """How many tests passed and failed, of pytest's last line."""
    counts = re.findall(r"\d+ (?:passed|failed|errors?|skipped)", printed.strip().splitlines()[-1])
    return ", ".join(counts) or "did not run"


def line(version: str, kind: str, result: dict[str, str]) -> str:
    """A line of the table."""
    cells = [version, kind, *(result.get(name, "–") for name in PACKAGES), result["outcome"]]
    return f"| {' | '.join(cells)} |"


def merge(page: str, lines: Sequence[str]) -> str:
    """The page with these lines in place of those of the same Python and kind."""
    before, _, rest = page.partition("<!-- matrix -->\n")
    old, _, after = rest.partition("<!-- /matrix -->")
    table = {row[1:3]: row[0] for row in re.findall(r"(?m)^(\| ([\d.]+) \| (\w+) \|.*)$", old)}
    for text in lines:
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        table[cells[0], cells[1]] = text
    rows = [table[key] for key in sorted(table, key=lambda k: (k[1] != "oldest", k[0]))]
    return "\n".join(
        [f"{before}<!-- matrix -->", "", *HEADER, *rows, "", f"<!-- /matrix -->{after}"]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 if any test fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=PYTHONS)
    parser.add_argument("--tests", nargs="*", default=[])
    asked = parser.parse_args(arguments)
    tests = [f"tests/{name}.py" for name in asked.tests]
    lines = []
    for version in asked.only:
        kinds = {"oldest": lowest(), "newest": []} if version == PYTHONS[0] else {"newest": []}
        python = find_python(version)
        for kind, pins in kinds.items():
            where = asked.folder / f"{version}-{kind}"
            missing = {"outcome": "not run: no such Python on the machine"}
            result = run(python, where, pins, tests) if python else missing
            lines.append(line(version, kind, result))
            print(lines[-1], flush=True)
    PAGE.write_text(merge(PAGE.read_text("utf-8"), lines), "utf-8")
    return int(any(re.search(r"failed|error|cannot|did not", text) for text in lines))


if __name__ == "__main__":
    sys.exit(main())
