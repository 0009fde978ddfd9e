"""`floodmark campaign`: a night in small, killed and resumed; known findings; bad plans."""

import os
import signal
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import orjson
import pytest
from campaign_nights import WAIT_S, begun, ended, events, killed_when, state_of
from command_line import floodmark
from nights import CRASH, night, written
from run_processes import processes_of, wait_until

from floodmark.harness.campaign.cases import draws
from floodmark.harness.campaign.journal import BEGAN, ENDED, JUDGED, RECORDED, REPRODUCED
from floodmark.harness.campaign.ledger import Ledger
from floodmark.harness.campaign.plan import read

PLAN = """
for = "10min"
duration = 1
reproduce = 1
at_once = 2
[[system]]
rules = "high-watermark"
[[system]]
rules = "kip-320"
[[nemesis]]
scenario = "double-failover"
[[nemesis]]
nemesis = "none"
weight = 0.5
"""
RUNS = 5
SEED = 7


@pytest.mark.cluster
@pytest.mark.spark
def test_a_campaign_killed_again_and_again_is_the_same_campaign(tmp_path: Path) -> None:
    """At a start, under load, while judging; and asked to go on when nothing is left to do."""
    (tmp_path / "plan.toml").write_text(PLAN)
    folder, ledger = tmp_path / "night", tmp_path / "ledger.json"
    resume = ("resume", folder)
    killed_when(tmp_path, lambda: BEGAN in events(folder), "run", "plan.toml", "--out", folder,
                "--seed", SEED, "--runs", RUNS, "--ledger", ledger)
    killed_when(tmp_path, lambda: any((folder / "runs").glob("00002*/history.jsonl")), *resume)
    killed_when(tmp_path, lambda: events(folder).count(RECORDED) > events(folder).count(JUDGED) + 1, *resume)
    with begun(tmp_path, *resume) as process:
        said, complained = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1, (said, complained)  # the old protocol loses what was acked
    state = state_of(folder)
    drawn = draws(read(PLAN, "plan").cases, SEED)
    assert [(run.number, run.case, run.seed) for run in state.runs.values()] == [
        (draw.number, draw.case, draw.seed) for draw in islice(drawn, RUNS)]
    assert [run.number for run in state.runs.values() if run.done] == list(range(1, RUNS + 1))
    assert events(folder).count(JUDGED) == RUNS
    assert events(folder)[-1] == ENDED
    assert REPRODUCED in events(folder)
    assert said.splitlines()[-2:] == [f"  page       {folder / 'index.html'}", str(folder)]
    assert list((folder / "runs").glob("*-high-watermark-*/report.html"))  # of the smallest run
    systems = {signature["system"] for run in state.runs.values()
               for signature in (run.judged or {})["signatures"]}
    assert systems == {"high-watermark"}
    wait_until("every process to be gone", lambda: not processes_of(tmp_path), WAIT_S)
    ports = f"floodmark-{os.getuid()}"  # the locks of ports: for this user's runs to come
    assert [path.name for path in (tmp_path / "tmp").iterdir() if path.name != ports] == []

    valid = [run for run in state.runs.values() if run.judged and run.judged["kind"] == "valid"]
    assert valid
    for run in valid:  # shrunk
        assert sorted(path.name for path in (folder / run.folder).iterdir()) == [
            "measures.parquet", "run.json", "verdict.json"]
    shrunk_and_measured(tmp_path, folder)

    known_then_nothing_new(tmp_path, folder, ledger)


@pytest.mark.cluster
@pytest.mark.spark
def test_ctrl_c_leaves_reports_that_say_so(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    folder, junit, page = tmp_path / "night", tmp_path / "junit.xml", tmp_path / "summary.md"
    words = ("run", "plan.toml", "--out", "night", "--junit", junit, "--markdown", page)
    with begun(tmp_path, *words) as process:
        wait_until("a run to be begun", lambda: BEGAN in events(folder) or process.poll() is not None, WAIT_S)
        process.send_signal(signal.SIGINT)
        _, complained = process.communicate(timeout=WAIT_S)
    assert (process.returncode, "interrupted" in complained) == (4, True), complained
    (suite,) = ElementTree.fromstring(junit.read_bytes())
    assert [error.attrib["message"].split(";")[0] for error in suite.iter("error")] == ["interrupted"]
    assert "it did not end: interrupted" in page.read_text()
    wait_until("every process to be gone", lambda: not processes_of(tmp_path), WAIT_S)


def shrunk_and_measured(tmp_path: Path, folder: Path) -> None:
    """What is left of a run answers for it."""
    answer = floodmark("campaign", "stats", folder, "--json", tmp_path / "stats.json")
    assert answer.code == 0, answer
    told = orjson.loads((tmp_path / "stats.json").read_bytes())
    assert [row["acked"] for row in told["runs"]] == [
        run.judged["acked"] for run in state_of(folder).runs.values() if run.judged]


@pytest.mark.cluster
@pytest.mark.spark
def test_a_run_that_breaks_a_gate_fails_the_campaign_and_stays_whole(tmp_path: Path) -> None:
    plan = """
for = "10min"
duration = 1
[[nemesis]]
nemesis = "none"
[gates]
min_acked = 1000000000
max_unavailable_s = 60
"""
    (tmp_path / "plan.toml").write_text(plan)
    with begun(tmp_path, "run", "plan.toml", "--out", "night", "--runs", 1, "--seed", SEED) as process:
        said, complained = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1, (said, complained)
    (run,) = state_of(tmp_path / "night").runs.values()
    assert run.judged is not None
    assert (run.judged["kind"], [row["gate"] for row in run.judged["gates"]]) == ("gate", ["min_acked"])
    assert run.judged["measures"] == {"max_unavailable_s": None, "max_recovery_s": None}
    assert "writes were acked, 1,000,000,000 are asked for" in said
    assert (tmp_path / "night" / run.folder / "history.jsonl").exists()


def known_then_nothing_new(tmp_path: Path, folder: Path, ledger: Path) -> None:
    """What is marked as known is listed, and passes."""
    entries = orjson.loads(ledger.read_bytes())["signatures"]
    for id_ in entries:
        assert floodmark("campaign", "mark", id_[:6], "--ledger", ledger, "--known", "KIP-101").code == 0
    again = floodmark("campaign", "resume", folder)
    assert (again.code, "known: KIP-101" in again.out) == (0, True), again
    same = floodmark("campaign", "diff", folder, folder)
    assert (same.code, "as before" in same.out) == (0, True), same


@pytest.mark.parametrize(
    ("plan", "words", "says"),
    [
        ("foor = '4h'", (), "plan.toml:1: a plan does not know 'foor'"),
        ("for = '1min'\n[[nemesis]]\nnemesis = 'crash'\nintervall = 2", (),
         "plan.toml:4: [[nemesis]] does not know 'intervall'; valid: nemesis, scenario, interval"),
        ("[gates]\nmin_ack = 3", (), "plan.toml:2: [gates] does not know 'min_ack'"),
        ("[[system]]\nweight = 0", (), "nothing is left; give one a weight"),
        ("for = '1min'\n[[except]]\nrules = 'kip-320'", (), "nothing would be run; take out an [[except]]"),
        ("for = '1min'\nduration = 10", ("--for", "5s"), "5.0 s has no room for one run of 10 s: give the"),
        ("for = '1min'\nduration = 90", (), "1 min has no room for one run of 1 min 30 s"),
        ("", (), "how long? Say --for 20min"),
        ("for = '1min'\n[[nemesis]]\nnemesis = 'cras'", (), "cannot be run: no nemesis 'cras'"),
        ("for = '1min'\n[[nemesis]]\nscenario = 'nothing'", (), "no scenario 'nothing'"),
        ("for = '1min'\n[[system]]\nbugs = ['nothing']", (), "cannot be run"),
        ("for = '1min'", ("--for", "soon"), "--for: 'soon' is no time"),
    ],
)
def test_a_plan_that_is_off_starts_nothing(
    tmp_path: Path, plan: str, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "plan.toml").write_text(plan)
    answer = floodmark("campaign", "run", tmp_path / "plan.toml", *words, "--out", tmp_path / "night")
    assert (answer.code, says in answer.err) == (2, True), answer.err
    assert not (tmp_path / "night").exists()


def test_a_ledger_of_a_newer_version_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("for = '1min'")
    (tmp_path / "ledger.json").write_text('{"format": 2}')
    answer = floodmark("campaign", "run", tmp_path / "plan.toml", "--out", tmp_path / "night")
    assert (answer.code, "a newer version of floodmark wrote it" in answer.err) == (4, True), answer.err
    assert not (tmp_path / "night").exists()
    assert (tmp_path / "ledger.json").read_text() == '{"format": 2}'


def test_a_ledger_of_a_newer_version_keeps_a_campaign_from_going_on_and_spoils_nothing(
    tmp_path: Path
) -> None:
    state = night((CRASH, "valid", ()), why=None)
    folder = written(tmp_path / "night", state.lines, Ledger(), plan="for = '1h'")
    (tmp_path / "ledger.json").write_text('{"format": 2}')
    answer = floodmark("campaign", "resume", folder)
    assert answer.code == 4, answer
    for words in ("a newer version of floodmark wrote it", f"with: floodmark campaign resume {folder}",
                  "1 run: 1 valid"):
        assert words in answer.err + answer.out
    assert (tmp_path / "ledger.json").read_text() == '{"format": 2}'
    assert state_of(folder).runs == state.runs


def test_a_preset_is_printed_to_be_copied(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(floodmark("campaign", "plan", "smoke").out)
    assert "kip-320" in (tmp_path / "mine.toml").read_text()
    assert floodmark("campaign", "plan", "daily").code == 2


def test_what_is_no_campaign_is_not_resumed(tmp_path: Path) -> None:
    assert floodmark("campaign", "resume", tmp_path / "none").code == 2
    answer = floodmark("campaign", "resume", tmp_path)
    assert (answer.code, "it has no campaign.json" in answer.err) == (4, True)


@pytest.mark.cluster
@pytest.mark.spark
def test_a_known_bad_rule_more_brings_exactly_its_own_signatures(tmp_path: Path) -> None:
    """Two short nights, side by side with `campaign diff`."""
    first = """
for = "10min"
duration = 1
reproduce = 0
at_once = 2
[[system]]
rules = "high-watermark"
[[nemesis]]
scenario = "double-failover"
systems = ["high-watermark"]
"""
    second = f"""{first}
[[system]]
rules = "kip-320"
bugs = ["ack_on_append"]
[[nemesis]]
scenario = "ack-without-the-isr"
systems = ["kip-320+ack_on_append"]
"""
    nights = []
    for name, plan, runs in (("monday", first, 1), ("tuesday", second, 3)):  # the bank's run is one of them
        (tmp_path / f"{name}.toml").write_text(plan)
        nights.append(tmp_path / name)
        code, said, complained = ended(
            tmp_path, "run", f"{name}.toml", "--out", nights[-1], "--seed", SEED, "--runs", runs)
        assert code == 1, (said, complained)
    answer = floodmark("campaign", "diff", *nights)
    rows = [line for line in answer.out.splitlines() if " of " in line]
    assert answer.code == 1, answer
    assert [("ack_on_append" in row, row.endswith("  new"), row.endswith("  as before")) for row in rows] == [
        (True, True, False), (False, False, True)]
    back = floodmark("campaign", "diff", *reversed(nights))
    assert (back.code, back.out.count("  not run"), back.out.count("  as before")) == (0, 1, 1), back
