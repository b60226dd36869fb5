"""scripts/package: what is in the Debian package. That it installs, works and goes away is seen by `scripts/package --check`, which
makes an empty system and takes too long for here."""

import os
import re
import shutil
import subprocess

import pytest

from helpers import LIB, ROOT, clean_environment, environment, multiarch, run

TOOL = ROOT / "target/tools/bin/cargo-deb"
TRIPLET = multiarch()
CARGO = dict(re.findall(r'^(\w+) = "(.*)"$', (ROOT / "Cargo.toml").read_text().split("\n[lib]")[0], re.M))
FILE = "liboz2blas.so." + CARGO["version"]
LIBRARIES = "usr/lib/" + TRIPLET


def output(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, timeout=120, **more).stdout


@pytest.fixture(scope="module")
def package():
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb on this machine")
    if not TOOL.exists():
        pytest.skip("no cargo-deb; scripts/package --tool gets it")
    told = output(ROOT / "scripts/package", env=dict(clean_environment(), OZ2_LIB=str(LIB)))
    return told.strip()


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    output("dpkg-deb", "--raw-extract", package, folder)
    return folder


def field(package, name):
    return output("dpkg-deb", "--field", package, name).strip()


def test_contents(package):
    listed = re.findall(r"^(\S+) (\S+) .*? \./(\S*[^/\s])(?: -> (\S+))?$", output("dpkg-deb", "--contents", package), re.M)
    modes = {path: mode for mode, _, path, _ in listed}
    links = {path: target for _, _, path, target in listed if target}
    assert all(owner == "0/0" for _, owner, _, _ in listed)
    assert links == {LIBRARIES + "/liboz2blas.so": "liboz2blas.so.0", LIBRARIES + "/liboz2blas.so.0": FILE}
    assert modes["usr/bin/oz2run"] == "-rwxr-xr-x"
    plain = ["usr/include/oz2blas.h", LIBRARIES + "/" + FILE, LIBRARIES + "/pkgconfig/oz2blas.pc",
             "usr/share/man/man1/oz2run.1.gz", "usr/share/man/man7/oz2blas.7.gz"]
    doc = ["README.md", "copyright", "THIRD-PARTY", "docs/ways-in/README.md", "docs/symbols.md",
           "examples/product.c", "examples/product.f90", "examples/CMakeLists.txt", "examples/meson.build", "examples/meson.options"]
    for path in plain + ["usr/share/doc/oz2blas/" + name for name in doc]:
        assert modes.get(path) == "-rw-r--r--", path
    # Nothing but what belongs there.
    allowed = ("usr/bin/oz2run", "usr/include/oz2blas.h", LIBRARIES + "/liboz2blas.so", LIBRARIES + "/pkgconfig/oz2blas.pc",
               "usr/share/man/", "usr/share/doc/oz2blas/")
    assert [path for path in modes if not path.startswith(allowed)] == []


def test_control(package):
    assert field(package, "Package") == "oz2blas"
    assert field(package, "Version") == CARGO["version"] + "-1"
    assert field(package, "Architecture") == output("dpkg", "--print-architecture").strip()
    assert field(package, "Maintainer")
    # The first line is the synopsis, into which cargo-deb puts no more than 79 characters.
    synopsis, *more = field(package, "Description").splitlines()
    assert synopsis == CARGO["description"] and len(more) > 2


def test_dependencies_are_enough(package, unpacked):
    """The newest symbol version of the C library that is asked for, and every other library."""
    depends = dict(re.findall(r"([a-z0-9.-]+)(?: \(>= ([\d.]+)\))?", field(package, "Depends")))
    assert set(depends) == {"libc6", "libgcc-s1"}
    number = lambda text: [int(part) for part in text.split(".")]
    for file in (unpacked / "usr/bin/oz2run", unpacked / LIBRARIES / "liboz2blas.so.0"):
        versions = re.findall(r"\bGLIBC_([\d.]+)", output("readelf", "--version-info", "--wide", file))
        assert max(map(number, versions)) <= number(depends["libc6"]), "Cargo.toml: depends"
        needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "--dynamic", file))
        assert {re.sub(r"\.so.*", "", name) for name in needed} <= {"libc", "libm", "libgcc_s", "ld-linux-x86-64", "ld-linux-aarch64"}


def test_stripped_with_soname(unpacked):
    library = unpacked / LIBRARIES / FILE
    assert "[liboz2blas.so.0]" in output("readelf", "--dynamic", library)
    for file in (library, unpacked / "usr/bin/oz2run"):
        assert ".debug_info" not in output("readelf", "--section-headers", "--wide", file)


def test_maintainer_scripts(unpacked):
    """They register the alternative when the package is configured, take it away when it is removed, and keep it in an upgrade."""
    calls = unpacked / "calls"
    tools = unpacked / "tools"
    tools.mkdir()
    (tools / "update-alternatives").write_text('#!/bin/sh\necho "$@" >>"%s"\n' % calls)
    (tools / "update-alternatives").chmod(0o755)
    library, name = "/%s/liboz2blas.so.0" % LIBRARIES, "libblas.so.3-" + TRIPLET
    for script, word, expected in [
            ("postinst", "configure", "--install /%s/libblas.so.3 %s %s 1\n" % (LIBRARIES, name, library)),
            ("postinst", "triggered", ""), ("prerm", "upgrade", ""), ("prerm", "remove", "--remove %s %s\n" % (name, library))]:
        calls.write_text("")
        env = dict(os.environ, PATH="%s:%s" % (tools, os.environ["PATH"]))
        output(unpacked / "DEBIAN" / script, word, env=env)
        assert calls.read_text() == expected, (script, word)
    assert (unpacked / "DEBIAN/triggers").read_text().strip() == "activate-noawait ldconfig"


def test_licences(unpacked):
    doc = unpacked / "usr/share/doc/oz2blas"
    assert "Permission is hereby granted" in (doc / "copyright").read_text()
    third_party = (doc / "THIRD-PARTY").read_text()
    tree = output("cargo", "tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}", cwd=ROOT)
    crates = set(re.findall(r"^(\S+) v(\S+)", tree, re.M)) - {("oz2blas", CARGO["version"])}
    assert len(crates) > 10
    for crate in crates:
        assert "\n%s %s: " % crate in third_party, crate


def test_it_works_where_it_was_unpacked(unpacked, build):
    """The launcher finds the library beside it in the folder of the machine; the file of pkg-config leads to files that are there."""
    program = build("../../examples/product.c")
    result = run([unpacked / "usr/bin/oz2run", program], environment(blas="reference"))
    assert result.out == "40000 entries, 0 wrong\n" and result.total("emulated") == 1, str(result)
    if shutil.which("pkg-config"):
        env = dict(os.environ, PKG_CONFIG_PATH=str(unpacked / LIBRARIES / "pkgconfig"), PKG_CONFIG_SYSROOT_DIR=str(unpacked))
        for variable, file in (("libdir", "liboz2blas.so"), ("includedir", "oz2blas.h")):
            folder = output("pkg-config", "--variable=" + variable, "oz2blas", env=env).strip()
            assert (unpacked / folder.removeprefix(str(unpacked)).lstrip("/") / file).exists(), folder
