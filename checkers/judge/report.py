"""Writes verdict.json (format 1, replaced atomically) into a run's folder; `as_json` lists its keys.

Where the judge itself failed, it writes the traceback beside it, into judge-error.txt. The text for people is
in harness/report/verdict_text.py.
"""

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import RunAt, write_json, write_whole
from floodmark.harness.run_location import Place, is_named
from floodmark.harness.verdict import Finding, NotMade, Unknown, Verdict

FORMAT = 1
FAILURE = "judge-error.txt"
_NO_FAILURE = b"The judge has not failed on this run since.\n"


def as_json(verdict: Verdict) -> dict[str, Any]:
    """verdict.json as data."""
    made = to_builtins(verdict)
    del made["failure"]
    findings = [{"class" if key == "klass" else key: value for key, value in found.items()}
                for found in made["findings"]]  # fmt: skip
    return {"format": FORMAT, **made, "findings": findings}


def of_json(saved: Mapping[str, Any]) -> Verdict:
    """The verdict that as_json gave; the keys of saved_verdict.is_verdict must be there."""
    return Verdict(
        valid=saved["valid"],
        findings=tuple(
            Finding(name=found["name"], klass=found["class"], permitted_by=found["permitted_by"],
                    count=found["count"], examples=tuple(found.get("examples") or ()))
            for found in saved["findings"]),
        unknown=tuple(Unknown(names=tuple(entry["names"]), reason=entry["reason"])
                      for entry in saved.get("unknown") or ()),
        not_made=tuple(NotMade(names=tuple(entry["names"]), reason=entry["reason"])
                       for entry in saved.get("not_made") or ()),
        counts=saved.get("counts") or {},
        timings_s=saved.get("timings_s") or {},
    )


def write_verdict(folder: Place, verdict: Verdict) -> None:
    """Write verdict.json into the run's folder, atomically."""
    write_json(RunAt(folder=folder).verdict_path, as_json(verdict))


def is_run(folder: Place) -> bool:
    """Whether the folder has any file of a run; otherwise it was named by mistake, and nothing is written
    there."""
    run = RunAt(folder=folder)
    try:
        return is_named(run.about_path) or is_named(run.history_path)
    except OSError:
        return False  # it cannot be read: the verdict says so


def keep_failure(folder: Place, verdict: Verdict) -> Place | None:
    """Write the traceback of a judge that failed beside the verdict or, where that cannot be written, into a
    temporary file; return its place (None: none was written). If the judge did not fail, remove an old
    traceback."""
    path = folder / FAILURE
    if verdict.failure is None:
        remove_traceback(path)
        return None
    text = verdict.failure.encode(errors="replace")
    with suppress(FloodmarkError):
        if is_run(folder):
            write_whole(path, text)
            return path
    with (
        suppress(OSError),
        tempfile.NamedTemporaryFile(prefix="floodmark-judge-error-", suffix=".txt", delete=False) as file,
    ):
        file.write(text)
        return Path(file.name)
    return None


def remove_traceback(path: Place) -> None:
    """Remove the file; on a Hadoop file system, where nothing is removed, write that it is out of date."""
    with suppress(OSError, FloodmarkError):
        if isinstance(path, Path):
            path.unlink(missing_ok=True)
        elif path.is_file():
            write_whole(path, _NO_FAILURE)
