"""A campaign without clusters and Spark: the order of its runs, its gates, state and ledger, what it says."""

import datetime
import json
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest
from command_line import floodmark
from disk import files_no_larger_than
from golden_text import answered_as_written, as_written
from judged_runs import finding
from junit import outcome_in, suite_of
from nights import (
    ABOUT,
    ALLOWED,
    CRASH,
    EARLIER,
    GONE,
    HUNG,
    LOST,
    at,
    empty_state,
    night,
    nights,
    results,
    written,
)
from readme import CAMPAIGNS, blocks

from floodmark.harness import catalog
from floodmark.harness.campaign import ledger as ledgers
from floodmark.harness.campaign.ledger import Ledger, Night, Smallest, load, locked, save, with_findings
from floodmark.harness.campaign.plan import (
    _TOP,
    PRESETS,
    SEEDS,
    Weighted,
    case_of_json,
    case_to_json,
    draws,
    preset_text,
    presets,
    read,
    seed_of,
)
from floodmark.harness.campaign.plan import load as load_plan
from floodmark.harness.campaign.signatures import Signature, events_of, guarantees_of, signatures
from floodmark.harness.campaign.state import (
    DATABASE,
    JOURNAL,
    State,
    alone,
    judged_by_system,
    state_of,
    writable_state,
)
from floodmark.harness.commands import campaign
from floodmark.harness.commands.campaign import bank_of
from floodmark.harness.commands.campaign_processes import figures
from floodmark.harness.commands.campaign_run import with_gates
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.report.night import night_junit, night_markdown, p_same, results_of, summary
from floodmark.harness.run import system_of
from floodmark.harness.spec import RunSpec

KIP_320 = RunSpec(rules="kip-320")

# -- plans --------------------------------------------------------------------------------------------------

SMALL = """
for = "20min"
duration = 15
[[system]]
rules = "kip-320"
weight = 3
[[system]]
rules = "kip-320"
bugs = ["trunc_hw"]
config = { "replica.lag.time.max.ms" = 1000 }
[[guarantees]]
acks = "1"
config = { "min.insync.replicas" = "1" }
[[nemesis]]
nemesis = "crash,cut"
interval = 2
[[nemesis]]
scenario = "double-failover"
[[except]]
bugs = ["trunc_hw"]
scenario = "double-failover"
"""


def test_presets_can_be_read() -> None:
    """One for Kafka tests that version alone. The plan of the page has every key."""
    for name in presets():
        plan = load_plan(PRESETS / f"{name}.toml")
        assert plan.budget_s
        assert plan.disk_bytes
        assert all(one.case.faults for one in plan.cases)
    for name in presets("3.9.2"):
        plan = read(preset_text(name, "3.9.2"), "x")
        assert {one.case.system for one in plan.cases} == {"kafka-3.9.2+kip-320"}
        assert floodmark("campaign", "plan", name, "--kafka", "3.9.2").out == preset_text(name, "3.9.2")
    (text,) = blocks("toml", CAMPAIGNS)[:1]
    assert len(read(text, "the page").cases) == 4
    assert tomllib.loads(text).keys() == {*_TOP}


def cases_or_refusal(line: str) -> str:
    """Of a plan as JSON, behind SMALL: its time and its cases, each with its weight and its settings that are
    not usual; or why it is refused."""
    try:
        plan = read(json.loads(line).replace("SMALL", SMALL), "plan.toml")
    except UsageError as error:
        return f"! {error}".partition(" TOML: ")[0]  # what Python's reader says is its own
    usual, told = asdict(RunSpec()), [f"= {len(plan.cases)} cases in {plan.budget_s} s"]
    for one in plan.cases:
        more = (f"{name}={','.join(sorted(value)) if isinstance(value, (tuple, frozenset)) else value}"
                for name, value in asdict(one.case).items() if value != usual[name])
        told.append(" ".join([f"= {one.weight:g} of {one.case.system}, {one.case.faults}:", *more]))
        assert case_of_json(case_to_json(one.case)) == one.case
    return "\n".join(told)


def test_a_plan_gives_its_cases_or_is_refused_with_the_line(request: pytest.FixtureRequest) -> None:
    answered_as_written("plans.txt", cases_or_refusal, request)


@pytest.mark.parametrize("line", [f"disk = '{'9' * 400} GB'", f"for = '{'9' * 400}h'", "disk = '0.1 B'"])
def test_a_quantity_beyond_all_numbers_is_none(line: str) -> None:
    with pytest.raises(UsageError, match=r"plan.toml:1: .* is (not a size|more than a year)"):
        read(line, "plan.toml")


def cases(*weights: float) -> list[Weighted]:
    return [Weighted(case=RunSpec(rules="kip-320", nodes=position + 1), weight=weight)
            for position, weight in enumerate(weights)]


def test_each_case_has_its_share_whenever_the_campaign_stops() -> None:
    weights = (3, 1, 1)
    for count in range(1, 60):
        counts = Counter(draw.case.nodes for draw in islice(draws(cases(*weights), 7), count))
        for node, weight in enumerate(weights, 1):
            assert abs(counts[node] - count * weight / 5) <= 1


def test_runs_have_consecutive_seeds_and_those_of_the_bank_come_first_with_their_own() -> None:
    """Drawn settings go round with the seed. Two campaigns hardly ever share one."""
    drawn = list(islice(draws(cases(1), 7, [(RunSpec(rules="kip-101"), 42)]), 3))
    assert [(draw.number, draw.case.rules, draw.seed) for draw in drawn] == [
        (1, "kip-101", 42), (2, "kip-320", seed_of(7, 2)), (3, "kip-320", seed_of(7, 3))]
    seeds = [seed_of(7, number) for number in range(1, 200)]
    assert [(later - seeds[0]) % SEEDS for later in seeds] == [*range(199)]
    assert not {*seeds} & {seed_of(8, number) for number in range(1, 200)}


# -- gates --------------------------------------------------------------------------------------------------

GATES = {"max_unavailable_s": 10.0, "max_recovery_s": 2.0, "min_acked": 100.0}
SCENARIO = replace(KIP_320, scenario="double-failover")


@pytest.mark.parametrize(("case", "changes", "kind", "broken"), [
    (KIP_320, {}, "valid", []),  # exactly at the limits
    (KIP_320, {"acked": 99}, "gate", ["min_acked"]),
    (KIP_320, {"measures": {"max_unavailable_s": 10.001}}, "gate", ["max_unavailable_s"]),
    (KIP_320, {"measures": {"max_recovery_s": 2.001}}, "gate", ["max_recovery_s"]),
    (KIP_320, {"measures": {"max_unavailable_s": None, "max_recovery_s": None}}, "valid", []),  # no fault
    (KIP_320, {"kind": "invalid", "acked": 99}, "invalid", ["min_acked"]),
    # Nothing was acked because nothing was judged, or the run ended early: that is 4, and not 1.
    (KIP_320, {"kind": "interrupted", "acked": 0, "harness": True}, "interrupted", []),
    (SCENARIO, {"acked": 1}, "valid", []),  # its load is not asked for
], ids=repr)
def test_a_valid_run_that_breaks_a_gate_is_of_the_kind_gate(
        case: RunSpec, changes: Mapping[str, Any], kind: str, broken: list[str]) -> None:
    answer = {"kind": "valid", "acked": 100, **changes,
              "measures": {"max_unavailable_s": 10.0, "max_recovery_s": 2.0, **changes.get("measures", {})}}
    found = with_gates(answer, GATES, case)
    assert (found["kind"], [row["gate"] for row in found["gates"]]) == (kind, broken)


def test_a_run_that_could_not_be_measured_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(folders: object) -> None:
        raise RuntimeError("the JVM is gone\nat some line")

    monkeypatch.setattr(catalog, "measure", fails)
    (unmeasured,) = figures([tmp_path])
    assert unmeasured == {"unmeasured": "RuntimeError: the JVM is gone"}
    for gates, kind in ((GATES, "unknown"), ({"min_acked": 100.0}, "valid"), ({}, "valid")):
        assert with_gates({"kind": "valid", "acked": 100, **unmeasured}, gates, KIP_320)["kind"] == kind


# -- the state ----------------------------------------------------------------------------------------------


def filled(state: State) -> State:
    """Of four runs one is judged, one recorded, one failed, one begun."""
    at(state, 100).open_session()
    for number in (1, 2, 3, 4):
        at(state, 100 + number).begin(number, number, KIP_320, f"runs/{number}")
    at(state, 110).end_run(1, {"took_s": 9.5, "cpu_s": 2.0, "resident_bytes": 1 << 20})
    state.end_run(2, {})
    at(state, 111).end_run(3, {"why": "no port"})
    at(state, 120).judge(1, {"kind": "valid", "signatures": []}, 1.5)
    at(state, 130).add("reproductions", signature="ab12", folder="again/ab12/1", shown=True)
    return state


LINES: list[dict[str, Any]] = [  # the same in a journal of before, with an event of each kind
    {"event": "opened", "time_s": 100},
    *({"event": "began", "time_s": 100 + number, "run": number, "case": case_to_json(KIP_320),
       "seed": number, "folder": f"runs/{number}"} for number in (1, 2, 3, 4)),
    {"event": "recorded", "time_s": 110, "run": 1, "took_s": 9.5, "cpu_s": 2.0, "resident_bytes": 1 << 20},
    {"event": "recorded", "time_s": 110, "run": 2},
    {"event": "failed", "time_s": 111, "run": 3, "why": "no port"},
    {"event": "judged", "time_s": 120, "run": 1, "kind": "valid", "signatures": [], "judge_s": 1.5},
    {"event": "reproduced", "time_s": 130, "signature": "ab12", "folder": "again/ab12/1", "shown": True},
]


def content(state: State) -> dict[str, Any]:
    rows = {table: state.select(f"SELECT * FROM {table}") for table in ("runs", "reproductions", "sessions")}
    return {"read": state.runs(), **rows}


def test_the_state_has_what_was_written(tmp_path: Path) -> None:
    """The time between sessions is not spent."""
    state = filled(writable_state(tmp_path, float))
    assert [run.status for run in state.runs()] == ["judged", "recorded", "failed", "begun"]
    assert (state.runs()[2].why, state.runs()[0].kind) == ("no port", "valid")
    assert state.reproductions("ab12") == [True]
    assert (state.spent_s, state.end) == (30, (None, False))
    assert content(state_of(tmp_path)) == content(state)
    at(state, 10_000).open_session()
    assert at(state, 10_003).spent_until_now_s == 33
    at(state, 10_005).end_session("the time is over", early=False)
    assert (state.spent_s, state.end) == (35, ("the time is over", False))


def test_a_run_that_failed_in_the_harness_counts_for_its_system_if_it_shows_a_bug() -> None:
    state = filled(empty_state())
    for shown, count in ((), 1), ((asdict(LOST),), 2):
        state.judge(2, {"harness": True, "signatures": shown}, None)
        assert judged_by_system(state.runs()) == {"kip-320": count}


def test_a_state_of_another_version_is_refused(tmp_path: Path) -> None:
    state = filled(writable_state(tmp_path, float))
    state.database.execute("UPDATE runs SET spec = '{}'").connection.commit()
    with pytest.raises(FloodmarkError, match=r"campaign\.db is not a state of this version: KeyError"):
        state_of(tmp_path).runs()


def test_a_journal_of_before_is_read_and_carried_over_when_the_campaign_goes_on(tmp_path: Path) -> None:
    """Cut off anywhere, its complete lines."""
    data = b"".join(orjson.dumps(line) + b"\n" for line in LINES)
    for end in range(0, len(data), 23):
        (tmp_path / JOURNAL).write_bytes(data[:end])
        assert len(state_of(tmp_path).runs()) == min(4, max(0, data[:end].count(b"\n") - 1))
    (tmp_path / JOURNAL).write_bytes(data)
    before = content(state_of(tmp_path))
    assert before == content(filled(empty_state()))
    assert not (tmp_path / DATABASE).exists()  # reading writes nothing
    state = writable_state(tmp_path, lambda: 200)
    assert content(state) == before
    state.open_session()
    state.end_session("the time is over", early=True)
    (tmp_path / JOURNAL).write_bytes(b"it is not read again\n")
    assert (state_of(tmp_path).spent_s, state_of(tmp_path).end) == (30, ("the time is over", True))


WRITER = """
import sys, time
from pathlib import Path
from floodmark.harness.campaign.state import writable_state
from floodmark.harness.spec import RunSpec
state = writable_state(Path(sys.argv[1]), time.time)
state.open_session()
for number in range(1, 100_000):
    state.begin(number, number, RunSpec(rules="kip-320"), f"runs/{number}")
    state.end_run(number, {"took_s": 1.0})
    print(number, flush=True)
"""


def test_killed_at_any_instant_the_state_has_all_that_was_written(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        seen = [int(writer.stdout.readline()) for _ in range(40)]
        writer.kill()
        seen += map(int, writer.stdout.read().split())
    runs = writable_state(tmp_path, float).runs()
    assert [run.number for run in runs] == [*range(1, len(runs) + 1)]
    assert len(runs) - len(seen) in (0, 1)
    assert all(run.status == "recorded" for run in runs[:len(seen)])


def test_on_a_full_disk_a_write_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    """And the next one is made once there is room."""
    state = filled(writable_state(tmp_path, float))
    before = content(state)
    with files_no_larger_than(1 << 10), pytest.raises(FloodmarkError, match=r"cannot write .*campaign\.db: "):
        state.end_run(4, {"why": "no room"})
    assert content(state) == content(state_of(tmp_path)) == before
    state.end_run(4, {"took_s": 1.0})
    assert state_of(tmp_path).runs()[3].status == "recorded"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    another = pytest.raises(FloodmarkError, match="another process is running the campaign")
    with alone(tmp_path), another, alone(tmp_path):
        raise AssertionError("two at once")
    with alone(tmp_path):
        pass


# -- the ledger ---------------------------------------------------------------------------------------------

OVERWRITTEN = replace(LOST, system="kip-101", step="", how="overwritten")
ACK = replace(OVERWRITTEN, system="kip-320", finding="ack-rule", how="isr", step="ack")
NIGHT = Night(began="2026-01-02T03:04:05+00:00", version="1", commit=None, runs={"kip-101": 20, "kip-320": 5})
LATER = Night(began="2026-01-02T02:04:05-02:00", version="2", commit="abc", runs={"kip-101": 30})
RUN = Smallest(folder="runs/1", size_bytes=1000, case={"rules": "kip-101"}, seed=7)


def two_nights() -> Ledger:
    first = Ledger().with_night("one", NIGHT).with_finding(
        OVERWRITTEN, "one", 3, faults={"all": 3}, smallest=RUN)
    return (first.with_night("two", LATER).with_finding(OVERWRITTEN, "two", 4, faults={"crash": 1})
            .with_finding(ACK, "two", 1)
            .changed(OVERWRITTEN.id, reproduced=(2, 5), known={"reason": "KAFKA-1", "since": "2026-01-04"},
                     notes=("only with four partitions",)))


def test_the_same_campaign_again_counts_nothing_twice() -> None:
    again = two_nights().with_night("one", NIGHT)
    again = again.with_finding(OVERWRITTEN, "one", 3, faults={"all": 3}, smallest=RUN)
    assert again == two_nights()
    entry = again.named(OVERWRITTEN.id[:6])
    assert (sum(entry.found.values()), again.nights_with(entry)) == (7, ["one", "two"])
    with pytest.raises(FloodmarkError, match="2 signatures"):
        again.named("")


def test_a_renamed_finding_keeps_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "ledger.json", two_nights())
    assert load(tmp_path / "ledger.json") == two_nights()
    monkeypatch.setattr(ledgers, "RENAMED", {"lost-write": "lost-record"})
    today, ledger = replace(OVERWRITTEN, finding="lost-record"), load(tmp_path / "ledger.json")
    entry = ledger.of(today)
    assert entry is not None
    assert (entry.id, entry.found) == (OVERWRITTEN.id, {"one": 3, "two": 4})
    assert entry.id != today.id
    after = ledger.with_finding(today, "two", 5)
    assert len(after.entries) == 2
    assert after.entries[OVERWRITTEN.id].found == {"one": 3, "two": 5}


def test_counts_of_a_campaign_that_is_not_listed_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "ledger.json", two_nights())
    whole = orjson.loads((tmp_path / "ledger.json").read_bytes())
    del whole["campaigns"]["two"]
    (tmp_path / "ledger.json").write_bytes(orjson.dumps(whole))
    with pytest.raises(FloodmarkError, match="does not list: two"):
        load(tmp_path / "ledger.json")


def test_behind_a_link_the_ledger_itself_is_written_and_locked(tmp_path: Path) -> None:
    """It may be kept elsewhere, in git. The temporary file of a killed writer is removed by the next one."""
    ours, link = tmp_path / "kept" / "ledger[1].json", tmp_path / "ledger.json"
    ours.parent.mkdir()
    save(ours, Ledger())
    link.symlink_to("kept/ledger[1].json")
    for other in ("0123456789abcdef", "mine"):
        ours.with_name(f".{ours.name}.{other}").touch()
    with locked(link):
        save(link, two_nights())
    assert (link.is_symlink(), load(ours)) == (True, two_nights())
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "ledger.json"}
    assert {path.name for path in ours.parent.iterdir()} == {
        ours.name, f".{ours.name}.mine", f".{ours.name}.lock"}


def test_the_bank_has_the_runs_of_bugs_that_can_be_made_here(capsys: pytest.CaptureFixture[str]) -> None:
    """Another floodmark may know other settings, nemeses and scenarios; permitted findings are no bugs."""
    plan, ledger = read("bank = 2\n[[system]]\nrules = 'kip-101'", "plan"), Ledger().with_night("one", NIGHT)
    made: Sequence[Mapping[str, Any]] = (
        {}, {"rules": "kip-101", "nodes": "x"}, {"rules": "kip-101", "nemesis": "gremlin"},
        {"rules": "kip-101", "scenario": "none-such"}, {"rules": "kip-320"}, {"rules": "kip-101"},
        {"rules": "kip-101", "nemesis": "crash"}, {"rules": "kip-101", "nodes": 5})
    for number, case in enumerate(made):
        ledger = ledger.with_finding(replace(OVERWRITTEN, how=str(number)), "one", 1, smallest=Smallest(
            folder="runs/1", size_bytes=1, case=case, seed=number))
    ledger = ledger.with_finding(ACK, "one", 1)  # of no run
    assert [run["seed"] for run in bank_of(ledger, plan)] == [5, 6]
    assert capsys.readouterr().err.count("cannot be made here: ") == 4


def test_system_and_guarantees_are_part_of_a_signature() -> None:
    """Besides its cause (golden/words.txt). A damaged run.json has names too."""
    about = {"rules": "high-watermark", "config": {"n1": {"floodmark.bugs": "b,a"}, "n2": {}}, "guarantees": {
        "acks": "all", "min_insync_replicas": 2, "unclean_leader_election": False, "flush": "os"}}
    (mine,) = signatures({"findings": [finding("diverged", {})]}, about, {})
    assert (mine.system, mine.guarantees) == ("high-watermark+a+b", "acks=all min_insync_replicas=2 flush=os")
    (other,) = signatures({"findings": [finding("diverged", {})]}, {**about, "guarantees": {"acks": "1"}}, {})
    assert (other.id != mine.id, "acks=1" in other.sentence) == (True, True)
    assert [system_of({}), system_of({"rules": "kip-320", "config": []})] == ["?", "kip-320"]
    assert guarantees_of({"guarantees": 3}) == ""


def test_the_trace_lines_needed_are_those_of_the_examples() -> None:
    findings = [finding("a", {"event": 5}, {"event": True}, {}), finding("b", {"event": 9})]
    assert events_of({"findings": findings}) == {5, 9}


def test_fishers_exact_test_gives_the_textbook_value() -> None:
    """The lady tasting tea: 3 of 4 cups right."""
    assert p_same((3, 4), (1, 4)) == pytest.approx(0.4857, abs=1e-4)


# -- what a night says --------------------------------------------------------------------------------------

NOW = datetime.datetime(2026, 3, 1, 2, 3, 4)


def test_what_a_night_says(request: pytest.FixtureRequest) -> None:
    """The summary, the page and the cases of the JUnit report, as golden/nights.txt has them."""
    now = ""
    for title, state, before in nights():
        found = results(state, before)
        now += f"== {title}: exit code {found.exit_code}\n{summary(found).rstrip()}\n-- page\n"
        now += f"{night_markdown(found).decode().rstrip()}\n-- JUnit\n"
        for case in suite_of(night_junit(found, NOW)).iter("testcase"):
            tag, _, message = outcome_in(case) or ("", "", case.findtext("system-out") or "")
            now += f"{case.attrib['classname']}: {case.attrib['name']}: {f'{tag} {message}'.lstrip()}\n"
    as_written("nights.txt", now, request)


@pytest.mark.parametrize("kind", [
    "valid", "unknown", "failed in the harness", "interrupted", "not made", "invalid", "stuck", "known",
    "permitted"])
def test_a_report_has_failures_exactly_if_the_exit_code_is_not_0(kind: str) -> None:
    shown = {"invalid": (LOST,), "stuck": (HUNG,), "known": (GONE,), "permitted": (ALLOWED,)}.get(kind, ())
    in_state = {"known": "invalid", "permitted": "valid"}.get(kind, kind)
    state = night((CRASH, in_state, shown), (CRASH, "valid", ()))
    ledger = with_findings(Ledger(), state, ABOUT, Path("/nights"))
    if kind == "known":
        ledger = ledger.changed(GONE.id, known={"reason": "KAFKA-1", "since": "2026"})
    found = results_of(state, ledger, ABOUT, [CRASH], folder="nights")
    suite = suite_of(night_junit(found, NOW))
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    assert (failed > 0) == (found.exit_code != 0)


def test_text_of_a_run_is_escaped_and_a_page_has_a_limit() -> None:
    hostile = replace(LOST, how="<script>alert(1)</script> | ![x](http://x)\x1b[31m\nnext")
    page = night_markdown(results(night((CRASH, "invalid", (hostile,))))).decode()
    assert [word for word in ("<script>", "![", "\x1b") if word in page] == []
    many_runs = night(*((CRASH, "invalid", (replace(LOST, step=f"step {chr(97 + number // 26)}{number}"),))
                        for number in range(200)))
    small = night_markdown(results(many_runs), limit=20_000)
    assert (len(small) < 20_000, b"Cut for length" in small) == (True, True)


def test_a_report_that_cannot_be_written_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "run_session", lambda *_: None)
    folder = written(tmp_path / "night", night((CRASH, "valid", ())), Ledger(), plan="for = '1min'")
    assert campaign.resume_campaign(folder) == 0
    (tmp_path / "file").touch()
    assert campaign.resume_campaign(folder, junit_file=tmp_path / "file" / "junit.xml") == 4
    assert "junit.xml" in capsys.readouterr().err


# -- what two nights differ in ------------------------------------------------------------------------------

Outcomes = Sequence[tuple[str, tuple[Signature, ...]]]
VALID, STUCK = ("valid", ()), ("stuck", (HUNG,))
DIFFERENCES: Mapping[str, tuple[Outcomes, Outcomes]] = {
    "violations, stuck clusters and runs without a result; what failed in the harness is counted apart": (
        (VALID, STUCK, ("failed in the harness", ())),
        (VALID, ("invalid", (LOST,)), STUCK, ("not made", ()), ("unknown", ()))),
    "a newly stuck cluster": ([VALID], [STUCK]),
    "a violation of a system that did not run before: nobody knows whether it is new": (
        [("not made", ())], [("invalid", (LOST,))]),
    "nothing": ([VALID], [VALID]),
}


def test_what_two_nights_differ_in(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A newly stuck cluster that is marked as known fails no diff."""
    now = ""
    for number, (title, both) in enumerate(DIFFERENCES.items()):
        before, after = (
            written(tmp_path / f"{number}{name}", night(*((CRASH, *one) for one in each)), Ledger(), plan="")
            for name, each in zip("ab", both, strict=True))
        (before / "campaign.json").write_text('{"format": 1}')  # of another floodmark
        answer = floodmark("campaign", "diff", before, after)
        lines = "\n".join(line.rstrip() for line in answer.out.strip().splitlines())
        now += f"== {title}: exit code {answer.code}\n{lines}\n"
        if both[1] == [STUCK]:
            known = Ledger(nights={"b": EARLIER}).with_finding(HUNG, "b", 1)
            save(tmp_path / "marks.json", known.changed(HUNG.id, known={"reason": "x", "since": "2026"}))
            answer = floodmark("campaign", "diff", before, after, "--ledger", tmp_path / "marks.json")
            assert (answer.code, "new (known)" in answer.out) == (0, True)
    as_written("differences.txt", now, request)
