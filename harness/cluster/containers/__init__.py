"""The cluster in containers: brokers in an image, each with a network namespace and an address of its own.

docker and testcontainers are imported here and nowhere else. The catalog enters, and the doctor, which looks
at the engine. Begin with cluster.py, then engine_resources.py (every call to the engine)
and pods.py (the processes).
"""

from importlib.util import find_spec

from floodmark.harness.errors import FloodmarkError

# In a checkout a bare folder docker/ is found where docker-py is not: a namespace, which has no file.
_NEEDED = {name: find_spec(name) for name in ("docker", "testcontainers")}
_MISSING = [name for name, spec in _NEEDED.items() if spec is None or spec.origin is None]
if _MISSING:
    raise FloodmarkError(f"the containers cluster needs {' and '.join(_MISSING)}, not installed here: "
                         "pip install 'floodmark[containers]'")
