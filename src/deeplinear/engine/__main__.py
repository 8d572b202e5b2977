"""`python -m deeplinear.engine` compiles the engine."""

import sys

from deeplinear.engine._build import build

if __name__ == "__main__":
    made = build()
    for path in made:
        print(path)  # noqa: T201
    sys.exit(not made)
