"""`make mutants`: puts small mistakes into a copy of the checkout and prints which test catches each.

    python tests/mutants/mutants.py                    each mutant with the tests that mutants.toml names
    python tests/mutants/mutants.py --all              with all of `make test`
    python tests/mutants/mutants.py --only NAME,...    some of them
    ... --write FILE                                   the table goes into FILE, below `<!-- table -->`

The copy has an environment of its own; the checkout itself is never changed. A mutant whose old text is gone
(or there twice) is not run: mutants.toml must follow the product. Exit code 1 if any mutant was not caught.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MARK = "<!-- table -->\n"
TIMEOUT_S = 3600
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_MARKERS = ("-m", "not docker and not kafka and not long")
_AS_MAKE_TEST = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mistake: `new` in the place of `old`, which is in `file` once."""

    name: str
    about: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]  # the files that should catch it


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a mutant. caught_by: the first test that failed; None: none did."""

    mutant: Mutant
    caught_by: str | None
    seconds: float

    def row(self) -> str:
        caught = f"`{self.caught_by}`" if self.caught_by else "**nothing**"
        return f"| {self.mutant.name} | {self.mutant.about} | `{self.mutant.file}` | {caught} " \
               f"| {self.seconds:.0f} |"


class GoneError(Exception):
    """The old text of some mutant is not in its file exactly once."""


def load() -> list[Mutant]:
    """The mutants of mutants.toml."""
    by_name = tomllib.loads((HERE / "mutants.toml").read_text(encoding="utf-8"))
    return [Mutant(name=name, **{**fields, "tests": tuple(fields["tests"])})
            for name, fields in by_name.items()]


def check(mutants: Sequence[Mutant], root: Path = ROOT) -> None:
    """Raises GoneError, with all of them, if a mutant does not fit the product or its tests are missing."""
    wrong = [f"{one.name}: {count} times in {one.file}: {one.old!r}" for one in mutants
             if (count := text_of(root / one.file).count(one.old)) != 1]
    wrong += [f"{one.name}: there is no {test}" for one in mutants for test in one.tests
              if not (root / test).exists()]
    if wrong:
        raise GoneError("\n".join(wrong))


def text_of(path: Path) -> str:
    """The file's text; empty if there is no file."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


@contextmanager
def applied(mutant: Mutant, root: Path) -> Iterator[None]:
    """A context in which the copy has the mistake."""
    path = root / mutant.file
    sound = path.read_text(encoding="utf-8")
    try:
        rewrite(path, sound.replace(mutant.old, mutant.new))
        yield
    finally:
        rewrite(path, sound)


def rewrite(path: Path, text: str) -> None:
    """Writes the file and removes its compiled module, which Python reuses if the file's second and size are
    the same."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def copy_checkout(target: Path) -> None:
    """Copies the checkout, with uncommitted changes, and an environment in which `floodmark` is that copy."""
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(target)], check=True)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if not (ROOT / name).exists():
            (target / name).unlink(missing_ok=True)  # removed, and not committed yet
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    make_environment(target)


def make_environment(target: Path) -> None:
    """Makes target/.venv: everything that is installed here, except `floodmark`."""
    venv.EnvBuilder(symlinks=True).create(target / ".venv")
    (site,) = (target / ".venv" / "lib").glob("python*/site-packages")
    installed = Path(sysconfig.get_path("purelib"))
    for path in installed.glob("__editable__*floodmark*"):
        text = path.read_text(encoding="utf-8")
        (site / path.name).write_text(text.replace(str(ROOT), str(target)), encoding="utf-8")
    (site / "installed.pth").write_text(f"{installed}\n", encoding="utf-8")
    own, theirs = target / ".venv" / "bin", Path(sys.executable).parent
    for script in theirs.iterdir():
        if (own / script.name).exists() or script.is_dir():
            continue
        head = script.read_bytes()[:200]
        if head.startswith(b"#!" + str(theirs).encode()):
            text = script.read_text(encoding="utf-8").replace(str(theirs), str(own), 1)
            (own / script.name).write_text(text, encoding="utf-8")
            (own / script.name).chmod(0o755)
        else:
            (own / script.name).symlink_to(script.resolve())


def first_failure(root: Path, arguments: Sequence[str]) -> str | None:
    """The first test that fails, or what ended the tests; None: all passed."""
    environment = {**os.environ, "VIRTUAL_ENV": str(root / ".venv"), "PYTHONPATH": ""}
    command = [str(root / ".venv/bin/python"), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
               *_MARKERS, *arguments]
    try:
        ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True,
                             timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {TIMEOUT_S} s"
    if ran.returncode == 0:
        return None
    failed = _FAILED.search(ran.stdout)
    return failed.group(1) if failed else f"exit code {ran.returncode}: {ran.stdout[-200:]!r}"


def tried(mutant: Mutant, root: Path, *, everything: bool) -> Result:
    began = time.monotonic()
    with applied(mutant, root):
        caught_by = first_failure(root, _AS_MAKE_TEST if everything else mutant.tests)
    return Result(mutant=mutant, caught_by=caught_by, seconds=time.monotonic() - began)


def table(results: Sequence[Result]) -> str:
    head = "| mutant | what is wrong | file | caught by | s |\n| --- | --- | --- | --- | ---: |\n"
    return head + "".join(f"{one.row()}\n" for one in results)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all of `make test`, until one fails")
    parser.add_argument("--only", default="", help="names, comma-separated")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this file")
    options = parser.parse_args()
    names = set(filter(None, options.only.split(",")))
    every = load()
    if unknown := names - {one.name for one in every}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    mutants = [one for one in every if not names or one.name in names]
    check(mutants)
    results = []
    with tempfile.TemporaryDirectory(prefix="floodmark-mutants-") as folder:
        root = Path(folder).resolve() / "checkout"
        copy_checkout(root)
        for mutant in mutants:
            results.append(tried(mutant, root, everything=options.all))
            print(results[-1].row(), flush=True)
    if options.write:
        before, mark, _ = options.write.read_text(encoding="utf-8").partition(MARK)
        options.write.write_text(before + (mark or MARK) + "\n" + table(results), encoding="utf-8")
    missed = [one.mutant.name for one in results if one.caught_by is None]
    print(f"{len(results) - len(missed)} of {len(results)} caught", *missed, sep="\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
