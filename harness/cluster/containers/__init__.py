"""The cluster in containers. Begin with place.py (the processes), then engine_resources.py (every call to the
engine)."""

from importlib.util import find_spec

from floodmark.harness.errors import FloodmarkError

# Without docker-py a checkout's folder docker/ is found as a namespace package, which has no file.
_NEEDED = {name: find_spec(name) for name in ("docker", "testcontainers")}
_MISSING = [name for name, spec in _NEEDED.items() if spec is None or spec.origin is None]
if _MISSING:
    raise FloodmarkError(f"the containers cluster needs {' and '.join(_MISSING)}, not installed here: "
                         "pip install 'floodmark[containers]'")
