"""`floodmark campaign`: a small night, killed and resumed; known findings; bad plans."""

import os
import signal
from pathlib import Path
from xml.etree import ElementTree

import orjson
import pytest
from campaign_nights import PLAN, SEED, WAIT_S, assert_runs_as_drawn, begun, killed_when, statuses
from command_line import floodmark
from nights import CRASH, night, written
from run_processes import processes_of, wait_until

from floodmark.harness.campaign.ledger import Ledger
from floodmark.harness.campaign.state import JUDGED, RECORDED, state_of

RUNS = 3


@pytest.fixture(scope="module")
def monday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign that was killed at a start, under load and while judging, and then finished."""
    tmp_path = tmp_path_factory.mktemp("monday")
    (tmp_path / "plan.toml").write_text(PLAN)
    folder, ledger = tmp_path / "night", tmp_path / "ledger.json"
    resume = ("resume", folder)
    killed_when(tmp_path, lambda: bool(statuses(folder)), "run", "plan.toml", "--out", folder,
                "--seed", SEED, "--runs", RUNS, "--ledger", ledger)
    killed_when(tmp_path, lambda: any((folder / "runs").glob("00002*/history.jsonl")), *resume)
    killed_when(tmp_path, lambda: statuses(folder).count(RECORDED) > 1, *resume)
    with begun(tmp_path, *resume) as process:
        said, complained = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1, (said, complained)  # the old protocol loses acked writes
    assert said.splitlines()[-2:] == [f"  page       {folder / 'index.html'}", str(folder)]
    wait_until("every process to be gone", lambda: not processes_of(tmp_path), WAIT_S)
    return folder


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.spark
def test_a_campaign_killed_again_and_again_is_the_same_campaign(monday: Path) -> None:
    """Also when it is resumed with nothing left to do."""
    folder, tmp_path = monday, monday.parent
    state = state_of(folder)
    assert_runs_as_drawn(state, PLAN, RUNS)
    assert statuses(folder) == [JUDGED] * RUNS
    assert state.end == (f"{RUNS} runs made, as requested", False)
    assert state.select("SELECT shown FROM reproductions") == [(1,)]
    assert list((folder / "runs").glob("*-high-watermark-*/report.html"))  # the smallest run's
    systems = {signature.system for run in state.runs() for signature in run.signatures}
    assert systems == {"high-watermark"}
    ports = f"floodmark-{os.getuid()}"  # the locks of ports: this user's later runs need them
    assert [path.name for path in (tmp_path / "tmp").iterdir() if path.name != ports] == []

    valid = [run for run in state.runs() if run.kind == "valid"]
    assert valid
    for run in valid:  # shrunk
        assert sorted(path.name for path in (folder / run.folder).iterdir()) == [
            "measures.parquet", "run.json", "verdict.json"]
    shrunk_and_measured(tmp_path, folder)

    known_then_nothing_new(folder, tmp_path / "ledger.json")


@pytest.mark.spark
def test_ctrl_c_leaves_reports_that_say_so(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(TUESDAY)
    folder, junit, page = tmp_path / "night", tmp_path / "junit.xml", tmp_path / "summary.md"
    words = ("run", "plan.toml", "--out", "night", "--junit", junit, "--markdown", page)
    with begun(tmp_path, *words) as process:
        wait_until("a run to be begun", lambda: bool(statuses(folder)) or process.poll() is not None, WAIT_S)
        process.send_signal(signal.SIGINT)
        _, complained = process.communicate(timeout=WAIT_S)
    assert (process.returncode, "interrupted" in complained) == (4, True), complained
    (suite,) = ElementTree.fromstring(junit.read_bytes())
    assert [error.attrib["message"].split(";")[0] for error in suite.iter("error")] == ["interrupted"]
    assert "it did not finish: interrupted" in page.read_text()
    wait_until("every process to be gone", lambda: not processes_of(tmp_path), WAIT_S)


def shrunk_and_measured(tmp_path: Path, folder: Path) -> None:
    """What is kept of a valid run has its figures."""
    answer = floodmark("campaign", "stats", folder, "--json", tmp_path / "stats.json")
    assert answer.code == 0, answer
    stats = orjson.loads((tmp_path / "stats.json").read_bytes())
    assert [row["acked"] for row in stats["runs"]] == [
        run.judged["acked"] for run in state_of(folder).runs() if run.judged]


def known_then_nothing_new(folder: Path, ledger: Path) -> None:
    """A signature that is marked as known is listed, and passes."""
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
        ("[[system]]\nweight = 0", (), "nothing would run: give one a weight"),
        ("for = '1min'\n[[except]]\nrules = 'kip-320'", (), "nothing would run: remove an [[except]]"),
        ("for = '1min'\nduration = 10", ("--for", "5s"), "5.0 s has no room for one run of 10 s: give the"),
        ("for = '1min'\nduration = 90", (), "1 min has no room for one run of 1 min 30 s"),
        ("", (), "the campaign's time is missing: give --for 20min"),
        ("for = '1min'\n[[nemesis]]\nnemesis = 'cras'", (), "cannot be run: no nemesis 'cras'"),
        ("for = '1min'\n[[nemesis]]\nscenario = 'nothing'", (), "no scenario 'nothing'"),
        ("for = '1min'\n[[nemesis]]\nscenario = 'Z06'", (), "Z06 is 2 scenarios, and one is needed: "),
        ("for = '1min'\n[[system]]\nbugs = ['nothing']", (), "cannot be run"),
        ("for = '1min'", ("--for", "soon"), "'soon' is not a time"),
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
    folder = written(tmp_path / "night", state, Ledger(), plan="for = '1h'")
    (tmp_path / "ledger.json").write_text('{"format": 2}')
    answer = floodmark("campaign", "resume", folder)
    assert answer.code == 4, answer
    for words in ("a newer version of floodmark wrote it", f"with: floodmark campaign resume {folder}",
                  "1 run: 1 valid"):
        assert words in answer.err + answer.out
    assert (tmp_path / "ledger.json").read_text() == '{"format": 2}'
    assert state_of(folder).runs() == state.runs()


def test_a_preset_is_printed_to_be_copied(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(floodmark("campaign", "plan", "smoke").out)
    assert "kip-320" in (tmp_path / "mine.toml").read_text()
    assert floodmark("campaign", "plan", "daily").code == 2


def test_what_is_no_campaign_is_not_resumed(tmp_path: Path) -> None:
    assert floodmark("campaign", "resume", tmp_path / "none").code == 2
    answer = floodmark("campaign", "resume", tmp_path)
    assert (answer.code, "it has no campaign.json" in answer.err) == (4, True)


TUESDAY = """
for = "10min"
duration = 1
reproduce = 0
at_once = 2
[[cluster]]
cluster = "simulated"
[[system]]
rules = "high-watermark"
[[system]]
rules = "kip-320"
bugs = ["ack_on_append"]
[[nemesis]]
scenario = "double-failover"
systems = ["high-watermark"]
[[nemesis]]
scenario = "ack-without-the-isr"
systems = ["kip-320+ack_on_append"]
"""


@pytest.fixture(scope="module")
def tuesday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with one run of the old protocol and one of a known-bad rule."""
    tmp_path = tmp_path_factory.mktemp("tuesday")
    (tmp_path / "plan.toml").write_text(TUESDAY)
    night = floodmark("campaign", "run", tmp_path / "plan.toml", "--out", tmp_path / "night", "--seed", SEED,
                      "--runs", 2, "--ledger", tmp_path / "ledger.json")
    assert night.code == 1, night
    assert "judging 2 runs" in night.err  # a batch, in one call
    return tmp_path / "night"


@pytest.mark.spark
def test_each_run_is_judged_and_brings_the_signatures_of_its_system(tuesday: Path) -> None:
    """And a signature that is marked as known is not new the next time."""
    state = state_of(tuesday)
    assert statuses(tuesday) == [JUDGED] * 2
    assert "Traceback" not in (tuesday / "players.log").read_text()
    assert state.end == ("2 runs made, as requested", False)
    assert {signature.system for run in state.runs() for signature in run.signatures} == {
        "high-watermark", "kip-320+ack_on_append"}
    shrunk_and_measured(tuesday.parent, tuesday)
    known_then_nothing_new(tuesday, tuesday.parent / "ledger.json")
