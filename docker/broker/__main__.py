"""`python -m floodmark.broker --config FILE [--override KEY=VALUE]...` runs one broker, or the controller."""

import sys

# kio imports hypothesis where it is installed, which would be 40% of a broker's start (0.17 s of 0.43).
sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
from floodmark.broker.server.process import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
