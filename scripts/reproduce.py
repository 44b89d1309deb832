"""`python scripts/reproduce.py` is `python -m scripts.paper.reproduce`, from any folder."""

import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bigsvm import cli  # noqa: E402
from scripts import python_path  # noqa: E402
from scripts.paper.reproduce import main  # noqa: E402

if __name__ == "__main__":
    os.environ["PYTHONPATH"] = python_path()  # its worker processes import this checkout, too
    sys.exit(cli.run(main))
