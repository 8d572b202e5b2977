"""`python -m deeplinear.engine` compiles the engine."""

import sys

from deeplinear.engine._build import ADVICE, HERE, build

if __name__ == "__main__":
    try:
        made = build()
    except OSError as error:
        sys.exit(f"cannot write the engine to {HERE}: {error.strerror or error}. Run this as the owner of that folder.")
    for path in made:
        print(path)  # noqa: T201
    if not made:
        sys.exit(f"no C++ compiler works here, so runs are moved by XLA. {ADVICE}")
