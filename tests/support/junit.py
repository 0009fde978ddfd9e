"""JUnit reports as CI servers read them: valid by Jenkins' schema, their sums right."""

import re
from xml.etree import ElementTree

ATTRIBUTES = {  # Jenkins' junit-10.xsd: what must be there, what may
    "testsuites": ((), ("name", "time", "tests", "failures", "errors")),
    "testsuite": (("name", "tests", "failures", "errors"), ("time", "skipped", "timestamp")),
    "properties": ((), ()),
    "property": (("name", "value"), ()),
    "testcase": (("name",), ("time", "classname")),
    **dict.fromkeys(("failure", "error", "skipped"), ((), ("type", "message"))),
    "system-out": ((), ()),
}
CHILDREN = {
    "testsuites": {"testsuite"}, "testsuite": {"properties", "testcase"}, "properties": {"property"},
    "testcase": {"failure", "error", "skipped", "system-out"},
}


def suite_of(report: bytes) -> ElementTree.Element:
    """The only suite; each of its cases has a name of its own, and one outcome at most."""
    root = ElementTree.fromstring(report)
    assert root.tag == "testsuites"
    for element in root.iter():
        must, may = ATTRIBUTES[element.tag]
        assert set(must) <= set(element.keys()) <= {*must, *may}
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        assert re.fullmatch(r"\d+\.\d{3}", element.get("time", "0.000"))
    (suite,) = root
    cases = suite.findall("testcase")
    for case in cases:
        assert sum(case.find(tag) is not None for tag in ("failure", "error", "skipped")) <= 1
    for counted, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert suite.get(counted) == str(len(suite.findall(f"testcase/{tag}")))
    names = {(case.get("classname"), case.get("name")) for case in cases}
    assert suite.get("tests") == str(len(cases)) == str(len(names))
    return suite


def outcome_in(case: ElementTree.Element) -> tuple[str, str, str] | None:
    """The element of the outcome, its type and its message."""
    found = [child for child in case if child.tag != "system-out"]
    return (found[0].tag, found[0].get("type", ""), found[0].get("message", "")) if found else None
