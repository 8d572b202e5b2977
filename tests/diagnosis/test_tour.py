"""The tour of docs/guide/data.md that needs PyTorch, as a reader runs it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "data.md"


@pytest.mark.filterwarnings("ignore")  # those of PyTorch at its import are its own
def test_from_a_table_and_a_torch_model_to_the_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is in the extra `bench` only")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the matrices are tiny
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "tour"}
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    try:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    finally:
        torch.set_num_threads(threads)
    squares = np.linalg.lstsq(names["inputs"], names["outputs"], rcond=None)[0].T
    np.testing.assert_allclose(names["told"].limit, squares, atol=1e-6)
    agreed = {one.name for one in names["after"].predictions if one.agrees}
    assert agreed >= {"loss_end", "product_end", "learning_times", "kernel_distance", "conserved"}
    shown = text.partition("prediction against outcome\n                                        predicted")[2]
    printed = str(names["after"]).partition("prediction against outcome\n")[2]
    assert printed.splitlines()[1:3] == shown.splitlines()[1:3]  # the page shows what is printed
