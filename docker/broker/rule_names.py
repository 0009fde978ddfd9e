"""`python -m broker.rule_names` prints the names of generations, known bugs and switches, as JSON."""

import json
import sys

from broker.protocol import rules
from broker.testing.bugs import BUGS


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
