"""Runs cases of one of CPython's suites in this process, and tells of each on a pipe.

    python runner.py <directory of the suites> <ours or zero> <descriptor> list|run <suite> [case ...]

Every line on the pipe is a JSON list: `["case", name, class, source]` for `list`; for `run`, `["begin", name]` and
`["end", name, outcome, words]`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import sys
import unittest
from types import ModuleType
from typing import Any

import pointing

# Cases that use a pool, in the classes of the suite that are of other things too.
POOL_CASES = {
    "TestInitializers": ("test_pool_initializer",),
    "TestStdinBadfiledescriptor": ("test_pool_in_process",),
    "TestPoolNotLeakOnFailure": None,
    "TestSyncManagerTypes": ("test_pool",),
}


class Teller:
    """The pipe."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def say(self, *words: Any) -> None:
        os.write(self._descriptor, json.dumps(words).encode() + b"\n")


class Result(unittest.TestResult):
    """Tells of each case as it ends."""

    def __init__(self, teller: Teller) -> None:
        super().__init__()
        self._teller = teller
        self._outcome = ("passed", "")

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._outcome = ("passed", "")
        self._teller.say("begin", name_of(test))

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._teller.say("end", name_of(test), *self._outcome)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._outcome = ("skipped", reason)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._failed(test)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._failed(test)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._outcome = ("failed", f"{subtest}: {err[1]!r}")

    def _failed(self, test: unittest.TestCase) -> None:
        words = (self.errors + self.failures)[-1][1] if not self.failures else self.failures[-1][1]
        words = self.errors[-1][1] if self.errors and self.errors[-1][0] is test else words
        self._outcome = ("failed", words)
        if not isinstance(test, unittest.TestCase):  # what a class or module sets up
            self._teller.say("end", str(test), "failed", words)


def name_of(test: unittest.TestCase) -> str:
    return f"{type(test).__name__}.{test._testMethodName}"


def modules(suite: str) -> list[ModuleType]:
    if suite == "pools":
        return [importlib.import_module("pool_cases")]
    package = importlib.import_module("test.test_concurrent_futures")
    if not hasattr(package, "__path__"):
        return [package]
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if info.name.startswith("test_")]
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names if "interpreter" not in name]


def cases(suite: str, module: ModuleType, executor: type) -> list[unittest.TestCase]:
    found = []
    for name, kind in vars(module).items():
        if not (isinstance(kind, type) and issubclass(kind, unittest.TestCase)):
            continue
        names = unittest.defaultTestLoader.getTestCaseNames(kind)
        if suite == "executors":
            if getattr(kind, "executor_type", None) is not executor:
                continue
        elif name in POOL_CASES:
            names = [case for case in names if POOL_CASES[name] is None or case in POOL_CASES[name]]
        elif not (name.startswith(("WithProcessesTestPool", "WithManagerTestPool"))):
            continue
        found += [kind(case) for case in names]
    return found


def origin(test: unittest.TestCase) -> tuple[str, str]:
    """The class that a case is written in, and its source with that of what sets it up."""
    method = test._testMethodName
    home = next(kind for kind in type(test).__mro__ if method in vars(kind))
    parts = [getattr(home, name) for name in ("setUp", method) if name in vars(home)]
    return home.__name__, "\n".join(inspect.getsource(part) for part in parts)


def main() -> None:
    suites, whose, descriptor, action, suite, *wanted = sys.argv[1:]
    teller = Teller(int(descriptor))
    sys.path.insert(0, suites)
    executor = pointing.point(whose)
    pointing.point_scripts(whose, suites)
    for module in modules(suite):
        found = cases(suite, module, executor)
        if action == "list":
            for test in found:
                teller.say("case", name_of(test), *origin(test))
            continue
        chosen = unittest.TestSuite(test for test in found if name_of(test) in wanted)
        if chosen.countTestCases():
            chosen.run(Result(teller))


if __name__ == "__main__":
    main()
