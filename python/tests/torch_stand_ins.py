"""Lets a CUDA build of torch be imported on a machine without CUDA's libraries. For tests only.

torch's wheels link libraries of several gigabytes that are never called where there is no device. For each that is
missing this makes a tiny one with the same name and the symbols that torch asks of it, all of which answer 100 ("no
device"). Needs a C compiler and pyelftools.

    python torch_stand_ins.py SITE_PACKAGES
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection


class Wanted:
    """What torch's libraries ask of the missing ones."""

    def __init__(self, folder: Path) -> None:
        self.present = {path.name for path in folder.glob("*.so*")} | self._system()
        self.versions: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.loose: dict[str, set[str]] = defaultdict(set)
        self.missing: set[str] = set()
        self.defined: set[str] = set()
        for path in sorted(folder.glob("*.so*")):
            with path.open("rb") as file:
                self._read(ELFFile(file))

    @staticmethod
    def _system() -> set[str]:
        listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
        return {line.split()[0] for line in listed.stdout.splitlines() if "=>" in line}

    def _read(self, elf: ELFFile) -> None:
        needed = [tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
        missing = [name for name in needed if name not in self.present]
        self.missing.update(missing)
        numbers = {}
        for section in elf.iter_sections():
            if isinstance(section, GNUVerNeedSection):
                for library, entries in section.iter_versions():
                    for entry in entries:
                        numbers[entry["vna_other"]] = (library.name, entry.name)
        symbols, used = elf.get_section_by_name(".dynsym"), None
        for section in elf.iter_sections():
            if isinstance(section, GNUVerSymSection):
                used = section
        for library, version in numbers.values():
            if library not in self.present:
                self.versions[library][version].update()
        for index, symbol in enumerate(symbols.iter_symbols()):
            if not symbol.name:
                continue
            if symbol["st_shndx"] != "SHN_UNDEF":
                self.defined.add(symbol.name)
                continue
            library, version = numbers.get(used.get_symbol(index)["ndx"], (None, None)) if used else (None, None)
            if library is not None:
                if library not in self.present:
                    self.versions[library][version].add(symbol.name)
            elif missing and symbol["st_info"]["bind"] != "STB_WEAK":
                self.loose[symbol.name].update(missing)

    def symbols(self, library: str) -> set[str]:
        """Symbols without a version go to the missing library whose name they share, else to the first."""
        found = set()
        for symbol, libraries in self.loose.items():
            stem = [name for name in libraries if symbol.lower().startswith(_stem(name))]
            if symbol not in self.defined and (stem or sorted(libraries))[0] == library:
                found.add(symbol)
        return found


def _stem(library: str) -> str:
    return library.removeprefix("lib").split(".")[0].split("-")[0].lower()[:5]


def make(library: str, wanted: Wanted, folder: Path, work: Path) -> None:
    versions = wanted.versions.get(library, {})
    symbols = sorted(wanted.symbols(library).union(*versions.values()))
    body = "".join(f".globl {s}\n.type {s},@function\n{s}:\n" for s in symbols)
    source = work / "stand_in.S"
    source.write_text(f'.text\n{body}mov $100,%eax\nret\n.section .note.GNU-stack,"",@progbits\n')
    words = ["cc", "-shared", "-nostdlib", "-o", str(folder / library), str(source), f"-Wl,-soname,{library}"]
    if versions:
        lines = [
            f"{version} {{ global: {' '.join(f'{s};' for s in sorted(names)) or f'__stand_in_{at};'} }};"
            for at, (version, names) in enumerate(versions.items())
        ]
        script = work / "versions.map"
        script.write_text("\n".join(lines) + "\n")
        words.append(f"-Wl,--version-script={script}")
    subprocess.run(words, check=True)


def main() -> None:
    folder = Path(sys.argv[1]) / "torch" / "lib"
    wanted = Wanted(folder)
    with tempfile.TemporaryDirectory() as work:
        for library in sorted(wanted.missing):
            make(library, wanted, folder, Path(work))
    print(f"{len(wanted.missing)} stand-ins made in {folder}")


if __name__ == "__main__":
    main()
