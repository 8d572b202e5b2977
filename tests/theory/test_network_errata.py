"""The page of printed errors, its part on gradient flow as a network."""

import re
from pathlib import Path

from deeplinear.theory import checks

WHOLE = (Path(__file__).parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")
PAGE = WHOLE[WHOLE.index("## Gradient flow in deep linear networks") : WHOLE.index("## Geodesics and low rank")]


def test_page_and_checks_name_each_other() -> None:
    printed = {check.id for check in checks("network") if check.printed is not None}
    named = {name for name in re.findall(r"`(network/[^`]*)`", PAGE) if not name.startswith("network/fig")}
    known = {check.id for check in checks("network")}
    assert named <= known
    assert printed <= named, printed - named


def test_page_numbers_every_error_once() -> None:
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)]
    assert sorted(numbers) == list(range(1, 23))
