"""docs/statistics.md says what the library prints: the same names in the same order, and all Reasons."""

import json
import re

from helpers import PROGRAMS, PYTHON, ROOT, preloaded

PAGE = (ROOT / "docs/statistics.md").read_text()


def names(heading):
    """The names in the table below a heading."""
    section = PAGE.split("## %s\n" % heading)[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.M)


def test_names_are_those_of_the_library():
    code = (PROGRAMS / "ctypes_oz2.py").read_text() + """
first = last_call()
product(20, 20, 20)
emulated = last_call()
set_option("MODE", "native")
product(20, 20, 20)
print(json.dumps([stats(), first, emulated, last_call()]))
"""
    result = preloaded([PYTHON, "-c", code], blas="reference")
    stats, first, emulated, native = json.loads(result.out)
    assert list(stats) == names("The statistics of the process"), str(result)
    assert first == {"route": "none"}
    assert list(emulated) == names("The last call") and set(native) <= set(emulated), str(result)
    assert list(emulated["phases"]) == ["scan", "bound", "residues", "product"]


def test_reasons_are_those_of_the_library():
    source = (ROOT / "src/route/mod.rs").read_text()
    assert names("Reasons") == re.findall(r'^ +Self::\w+ => "([^"]+)",$', source, re.M)
