"""Writes what is inside the program, as a bill of materials (CycloneDX) and as a page of licences:
inside.py ARCH VERSION DIRECTORY"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = "incumbent-cli"


def cargo(*arguments: str) -> str:
    return subprocess.run(["cargo", *arguments], check=True, capture_output=True, text=True).stdout


def packages(target: str) -> list[dict]:
    """What is linked into the program, without what only builds it."""
    tree = cargo(
        "tree", "--locked", "--package", ROOT, "--edges", "normal,no-proc-macro", "--target", target,
        "--prefix", "none", "--format", "{p}",
    )  # fmt: skip
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1"))
    chosen = [p for p in metadata["packages"] if (p["name"], f"v{p['version']}") in linked]
    if len(chosen) != len(linked):
        sys.exit(f"cargo names {len(linked)} packages in the program, and describes {len(chosen)}")
    return sorted(chosen, key=lambda package: (package["name"], package["version"]))


def beside_crates(packages: list[dict]) -> list[tuple[str, str, str]]:
    """What else is linked in: name, version, licence."""
    rust = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True)
    sqlite = next(p for p in packages if p["name"] == "libsqlite3-sys")
    header = Path(sqlite["manifest_path"]).parent / "sqlite3/sqlite3.h"
    version = next(
        line.split('"')[1]
        for line in header.read_text().splitlines()
        if line.startswith("#define SQLITE_VERSION ")
    )
    return [
        ("SQLite", version, "blessing"),
        ("rust-std", rust.stdout.split()[1], "MIT OR Apache-2.0"),
        # The one that Rust's target brings along.
        ("musl", "1.2.5", "MIT"),
    ]


def bill(packages: list[dict], version: str) -> Bom:
    licences = LicenseFactory()
    sums = {
        (package["name"], package["version"]): package.get("checksum")
        for package in tomllib.loads(Path("Cargo.lock").read_text())["package"]
    }
    bom = Bom()
    bom.serial_number = None
    bom.metadata.timestamp = None
    bom.metadata.component = Component(
        name="incumbent", version=version, type=ComponentType.APPLICATION, bom_ref="incumbent",
        licenses=[licences.make_from_string("Apache-2.0")],
    )  # fmt: skip
    parts = []
    for package in packages:
        name = f"{package['name']}@{package['version']}"
        checksum = sums[(package["name"], package["version"])]
        parts.append(
            Component(
                name=package["name"],
                version=package["version"],
                bom_ref=name,
                purl=PackageURL("cargo", name=package["name"], version=package["version"]),
                licenses=[licences.make_from_string(package["license"].replace("/", " OR "))],
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [],
            )
        )
    for name, version, licence in beside_crates(packages):
        parts.append(
            Component(
                name=name, version=version, bom_ref=f"{name}@{version}",
                licenses=[licences.make_from_string(licence)],
            )  # fmt: skip
        )
    for part in parts:
        bom.components.add(part)
    bom.register_dependency(bom.metadata.component, parts)
    return bom


def licences(packages: list[dict]) -> str:
    """The licence of each part, and each licence's text once."""
    pages = ["The program incumbent is licensed under Apache-2.0, and holds these parts.\n"]
    texts: dict[str, list[str]] = {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        authors = ", ".join(package["authors"])
        pages.append(f"{name}: {package['license']}" + (f" ({authors})" if authors else ""))
        directory = Path(package["manifest_path"]).parent
        for kind in ("LICEN[CS]E*", "COPYING*", "NOTICE*", "COPYRIGHT*"):
            for file in sorted(directory.glob(kind)):
                if file.is_file():
                    texts.setdefault(file.read_text(errors="replace").strip(), []).append(name)
    for name, version, licence in beside_crates(packages):
        pages.append(f"{name} {version}: {licence}")
    for text, names in texts.items():
        pages.append(f"\n{'-' * 80}\n{', '.join(dict.fromkeys(names))}\n\n{text}")
    return "\n".join(pages) + "\n"


def main(arch: str, version: str, directory: str) -> None:
    inside = packages(f"{arch}-unknown-linux-musl")
    out = make_outputter(bill(inside, version), OutputFormat.JSON, SchemaVersion.V1_6)
    text = out.output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"the bill of materials is not as CycloneDX wants it: {error}")
    Path(directory, f"sbom-{arch}.cdx.json").write_text(text + "\n")
    Path(directory, f"licences-{arch}.txt").write_text(licences(inside))


main(*sys.argv[1:])
