#!/usr/bin/env python3
"""Prints the licences of the crates that the library is linked with: for each its name, version, licence and notice.

Called by scripts/package in the folder of Cargo.toml, after a build, so that the sources of all crates are there.
"""

import json
import pathlib
import subprocess
import sys


def linked(metadata):
    """The packages that the root package needs at run time, itself left out. Crates that run in the compiler (macros) are in: what
    they made is linked."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    found, open_ends = set(), [root]
    while open_ends:
        for dependency in nodes[open_ends.pop()]["deps"]:
            runtime = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if runtime and dependency["pkg"] not in found:
                found.add(dependency["pkg"])
                open_ends.append(dependency["pkg"])
    return sorted((p for p in metadata["packages"] if p["id"] in found), key=lambda p: p["name"])


def notice(package):
    """The shortest licence file of the crate: where there is a choice, not the long text of Apache-2.0."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = [path for path in folder.iterdir() if path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING"))]
    if not files:
        return "No licence file in the crate. Authors: %s" % ", ".join(package["authors"] or ["not named"])
    return min((path.read_text(errors="replace") for path in files), key=len)


def main():
    target = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = next(line.split()[1] for line in target.splitlines() if line.startswith("host:"))
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print("The library is linked with these crates, and with the standard library of Rust (MIT or Apache-2.0).")
    for package in linked(metadata):
        print("\n%s\n%s %s: %s\n\n%s" % ("=" * 80, package["name"], package["version"], package["license"], notice(package).strip()))


if __name__ == "__main__":
    sys.exit(main())
