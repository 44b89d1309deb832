"""python -m bigsvm COMMAND: the same as the console script."""

import sys

from bigsvm.cli import main

sys.exit(main())
