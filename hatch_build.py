"""Build hook of Hatch: compiles the native engine when the package is installed or a wheel is built.

`DEEPLINEAR_ENGINE=require` fails where no compiler works, `skip` leaves the engine out. `DEEPLINEAR_PLATFORM=TAG` makes
a wheel for another platform with ziglang; CONTRIBUTING.md lists the tags.
"""

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

SETTING, PLATFORM = "DEEPLINEAR_ENGINE", "DEEPLINEAR_PLATFORM"


def builder(root: str) -> ModuleType:
    """`deeplinear.engine._build`, loaded from its file: nothing else of the package is imported."""
    path = Path(root, "src", "deeplinear", "engine", "_build.py")
    spec = importlib.util.spec_from_file_location("engine_build", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def setting() -> str:
    """What `DEEPLINEAR_ENGINE` says: "require", "skip" or, by default, nothing."""
    value = os.environ.get(SETTING, "")
    if value not in ("", "require", "skip"):
        raise ValueError(f"{SETTING} is '{value}'. Set it to 'require' or 'skip', or unset it.")
    return value


def own_platform() -> str:
    """Platform tag of a wheel that is made for this machine only."""
    return next(tag for tag in platform_tags() if not tag.startswith(("manylinux", "musllinux")))


class EngineHook(BuildHookInterface):
    """Compiles the engine beside its sources for an editable installation, and into the wheel otherwise."""

    room: str | None = None

    def dependencies(self) -> list[str]:
        """Ask for ziglang where the engine is required and no other compiler is there, or for another platform."""
        if setting() == "skip" or self.target_name != "wheel":
            return []
        lacking = setting() == "require" and not builder(self.root).compilers()
        return ["ziglang"] if lacking or os.environ.get(PLATFORM) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the libraries and say where they go."""
        if setting() == "skip":
            return
        build = builder(self.root)
        tag = os.environ.get(PLATFORM) or None
        if tag is not None and tag not in build.TARGETS:
            raise ValueError(f"{PLATFORM} is '{tag}'. Set it to one of {', '.join(build.TARGETS)}, or unset it.")
        if version == "editable":
            if not build.is_current():
                self.judge(build, build.build())
            return
        self.room = tempfile.mkdtemp()
        made = build.build(Path(self.room), target=build.TARGETS[tag] if tag else None)
        self.judge(build, made, needed=tag is not None)
        for path in made:
            build_data["force_include"][str(path)] = f"deeplinear/engine/{path.name}"
        if made:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{tag or own_platform()}"

    def judge(self, build: ModuleType, made: list[Path], needed: bool = False) -> None:
        """Say that there is no engine; fail where it is needed."""
        if made:
            return
        if needed or setting() == "require":
            raise RuntimeError(f"no C++ compiler works here, but the native engine is required. {build.ADVICE}")
        self.app.display_warning(
            f"No C++ compiler works here: deeplinear is installed without its native engine, and XLA moves all runs. "
            f"{build.ADVICE}"
        )

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled for the wheel."""
        if self.room is not None:
            shutil.rmtree(self.room, ignore_errors=True)
