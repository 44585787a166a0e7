"""The command line on a data set that ships with scikit-learn.

Writes the breast-cancer data to a CSV file, runs ``everyfold search`` on it and saves a heat map
of the cross-validation scores beside it. Run with ``make demo`` or
``python examples/command_line.py``.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer

FOLDER = Path("build") / "demo"


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    bunch = load_breast_cancer()
    data, surface = FOLDER / "breast_cancer.csv", FOLDER / "surface.png"
    with data.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*bunch.feature_names, "diagnosis"])
        for row, code in zip(bunch.data.tolist(), bunch.target, strict=True):
            table.writerow([*row, bunch.target_names[code]])
    command = ["search", str(data), "--model", "svc", "--cv", "10", "--plot", str(surface)]
    print(f"$ everyfold {' '.join(command)}", flush=True)
    program = Path(sys.executable).with_name("everyfold")
    return subprocess.run([str(program), *command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
