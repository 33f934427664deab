"""Results of checks: what passed, what failed, and the fault by name; as text, JSON and JUnit."""

import json
import textwrap
from typing import Literal, NamedTuple
from xml.etree import ElementTree

Status = Literal["passed", "failed", "not checked"]


class Fault(NamedTuple):
    """Fault of an implementation or a batch.

    Attributes:
        name: short name, the same for the same fault.
        text: fault in a sentence, with its numbers.
        check: name of the check that found it.
        example: smallest example: where, what was wanted and what came.
    """

    name: str
    text: str
    check: str
    example: str


class Check(NamedTuple):
    """One check.

    Attributes:
        name: name of the check.
        status: "passed", "failed" or "not checked".
        text: comparison and the largest error, or the reason for not checking.
    """

    name: str
    status: Status
    text: str


class Conformance(NamedTuple):
    """Result of all checks of one implementation or one batch.

    Attributes:
        subject: name of the implementation or batch.
        checks: checks, in their order.
        faults: faults that explain the failed checks, the most certain first.
        page: title of the page of the documentation on the faults and how to mend them.
    """

    subject: str
    checks: tuple[Check, ...]
    faults: tuple[Fault, ...] = ()
    page: str = ""

    @property
    def passed(self) -> bool:
        """Whether something was checked and nothing failed."""
        found = {check.status for check in self.checks}
        return "passed" in found and "failed" not in found and not self.faults

    def text(self) -> str:
        """Result in lines: faults first, then every check.

        >>> print(Conformance("mine", (Check("values", "passed", "error 1e-7"),)).text())
        mine: passed
          passed       values: error 1e-7
        """
        lines = [f"{self.subject}: {self._outcome()}"]
        for fault in self.faults:
            said = f"{fault.name}: {fault.text}"
            lines += textwrap.wrap(said, 84, initial_indent="  ", subsequent_indent="    ")
            lines += [f"    {line}" for line in fault.example.splitlines()]
        lines += [f"  {check.status:<12} {check.name}: {check.text}" for check in self.checks]
        return "\n".join(lines)

    def _outcome(self) -> str:
        if not self.passed:
            about = f"; see “{self.page}” in the docs" if self.faults and self.page else ""
            return f"failed{about}"
        skipped = sum(check.status == "not checked" for check in self.checks)
        return f"passed; {skipped} not checked" if skipped else "passed"

    def json(self) -> str:
        """Result as JSON, with `passed`."""
        checks, faults = ([one._asdict() for one in many] for many in (self.checks, self.faults))
        value = {"subject": self.subject, "passed": self.passed, "checks": checks, "faults": faults}
        return json.dumps(value, indent=2)

    def junit(self) -> str:
        """Result as JUnit XML, one test case for each check.

        >>> print(Conformance("mine", (Check("rows", "not checked", "one row"),)).junit())
        <testsuite name="mine" tests="1" failures="0" skipped="1">...
        """
        count = [check.status for check in self.checks].count
        suite = ElementTree.Element(
            "testsuite", name=self.subject, tests=str(len(self.checks)),
            failures=str(count("failed")), skipped=str(count("not checked")),
        )  # fmt: skip
        for check in self.checks:
            case = ElementTree.SubElement(suite, "testcase", name=check.name)
            if check.status == "not checked":
                ElementTree.SubElement(case, "skipped", message=check.text)
            elif check.status == "failed":
                faults = [f"{f.text}\n{f.example}" for f in self.faults if f.check == check.name]
                failure = ElementTree.SubElement(case, "failure", message=check.text)
                failure.text = "\n".join(faults) or check.text
        return ElementTree.tostring(suite, encoding="unicode")
