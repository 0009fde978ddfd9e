"""A scenario's rows (the rules of a run, the findings it must have), and what a verdict has besides or lacks.

Rules
1. Every bug that a row names must be found, and no other except those in `also`.
2. A control has no bug at all and is valid. Permitted findings are in `permitted`, in controls too.
3. A row that names a lost write need not name its consequences: its offset is assigned again, which shows in
   acks (AGAIN); and if the loss is permitted, so are the trace's findings about that record (ON_THE_WAY).
4. Latent findings are those of the trace: they need no client. Manifest ones are those of the history and the
   logs. If the system shows less than the trace has, latent findings may be there or not, and it may remain
   unknown whether a setting permits all of the harm that the row permits.
5. If topics with settings of their own are in one cluster, `spared` says which findings one partition must
   not have while another does: it is the control in the same run.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from floodmark.harness.verdict import BUG, PERMITTED, Verdict

LOST = "lost-write"
AGAIN = frozenset({"inconsistent-offsets", "realtime-order"})
ON_THE_WAY = frozenset({"candidate-incomplete", "leader-incomplete", "unsafe-truncation"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The names that a scenario may use; the commands collect them."""

    generations: tuple[str, ...]
    bugs: Collection[str]
    switches: Collection[str]
    workloads: tuple[str, ...]
    findings: Collection[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run of the scenario: its rules, and what must be found."""

    rules: str
    bugs: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    latent: frozenset[str] = frozenset()
    manifest: frozenset[str] = frozenset()
    permitted: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    control: bool = False
    topics: tuple[Mapping[str, str], ...] = ()  # Kafka's keys of the topic of each partition; empty: none
    spared: Mapping[int, frozenset[str]] = field(default_factory=dict)  # partition -> what it must not show

    @property
    def label(self) -> str:
        """The row's name, unique within a scenario: kip-320 trunc_hw flush.messages=1."""
        of_topics = sorted({key for topic in self.topics for key in topic})
        return " ".join([self.rules, *self.bugs, *self.switches,
                         *(f"{key}={value}" for key, value in self.config.items()),
                         *(f"{key}={','.join(topic.get(key, '') for topic in self.topics)}"
                           for key in of_topics)])

    @property
    def harm(self) -> bool:
        return bool(self.latent or self.manifest)

    def expected(self) -> str:
        words = [", ".join(sorted(self.latent | self.manifest))] if self.harm else []
        words += [f"permitted: {', '.join(sorted(self.permitted))}"] if self.permitted else []
        return "; ".join(words) or "no harm"


def differences(row: Row, verdict: Verdict, *, traced: bool = True) -> list[str]:
    """List how the verdict differs from the row; empty: as expected. traced: the trace shows all of it."""
    bugs, permitted = (frozenset(found.name for found in verdict.findings if found.klass == klass)
                       for klass in (BUG, PERMITTED))
    if not traced:
        bugs -= row.latent | (ON_THE_WAY if LOST in row.manifest else frozenset())
    required = row.latent | row.manifest if traced else row.manifest
    allowed_bugs = required | row.also | (AGAIN if LOST in required else required) if row.harm else required
    allowed_permitted = row.permitted | row.also | (
        AGAIN | ON_THE_WAY if LOST in row.permitted else row.permitted)
    words = [f"no {name}" for name in sorted(required - bugs)]
    words += [f"{name} besides" for name in sorted(bugs - allowed_bugs)]
    words += [f"no permitted {name}" for name in sorted(row.permitted - permitted)]
    words += [f"permitted {name} besides" for name in sorted(permitted - allowed_permitted)]
    spared = [(key, found) for key, names in sorted(row.spared.items()) for found in verdict.findings
              if found.name in names]
    words += [f"{found.name} of partition {key}, which must be spared" for key, found in spared
              if any(one.get("partition") == key for one in found.examples)]
    words += [f"{found.name} {found.count} times, too often for all to be named: partition {key} may have one"
              for key, found in spared if found.count > len(found.examples)]
    if not row.harm and verdict.valid == "unknown":
        in_doubt = {name for one in verdict.unknown for name in one.names}
        if traced or not in_doubt or in_doubt - allowed_permitted:
            words += [f"unknown: {verdict.unknown[0].reason}" if verdict.unknown else "unknown"]
    return words
