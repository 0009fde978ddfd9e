"""The programs of docker/faults, which are in no package: they run alone in a container."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FAULTS = Path(__file__).resolve().parents[2] / "docker" / "faults"


def fault_program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fault_program_{name}", FAULTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module
