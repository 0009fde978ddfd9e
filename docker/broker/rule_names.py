"""`python -m floodmark.broker.rule_names` prints generations, known bugs and switches by name, as JSON."""

import json
import sys

from floodmark.broker.protocol import rules
from floodmark.broker.testing.bugs import BUGS


def main() -> int:
    names = {
        "generations": list(rules.GENERATIONS),
        "bugs": sorted(BUGS),
        "switches": sorted(getattr(rules, "SWITCHES", {})),
    }
    sys.stdout.write(json.dumps(names) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
