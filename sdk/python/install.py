"""Installs the package tasker for the Python that runs this, with nothing but its standard library: no pip, no
virtual environment and no network.

    python3 sdk/python/install.py

In a virtual environment it goes there. Elsewhere it goes to the packages of the user, which belong to no package
manager, so that a Python that is managed by one, such as that of Debian, stays as it is. pip lists it as tasker-go,
and uninstalls it.
"""

import base64
import hashlib
import re
import shutil
import site
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent


def field(name: str) -> str:
    """A text of pyproject.toml."""
    found = re.search(rf'^{name} = "(.*)"$', (HERE / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert found, name
    return found[1]


def folder() -> Path:
    """Where packages are found."""
    if sys.prefix != sys.base_prefix:
        return Path(sysconfig.get_path("purelib"))
    if not site.ENABLE_USER_SITE:
        sys.exit("install tasker: this Python has no packages of the user; make a virtual environment")
    return Path(site.getusersitepackages())


def recorded(file: Path, root: Path) -> str:
    """A line of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
    return f"{file.relative_to(root).as_posix()},sha256={digest},{file.stat().st_size}"


def main() -> None:
    if sys.version_info < (3, 10):
        sys.exit(f"install tasker: Python {sys.version.split()[0]} is too old: want 3.10 or later")
    target, name, version = folder(), field("name"), field("version")
    before = list(target.glob(f"{name.replace('-', '_')}-*.dist-info"))
    if (target / "tasker").exists() and not before:
        sys.exit(f"install tasker: {target / 'tasker'} is of another package: want it uninstalled")
    for old in [target / "tasker", *before]:
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(HERE / "src" / "tasker", target / "tasker", ignore=shutil.ignore_patterns("__pycache__"))
    info = target / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {field('description')}\n"
        f"Requires-Python: {field('requires-python')}\n",
        encoding="utf-8",
    )
    (info / "WHEEL").write_text(
        "Wheel-Version: 1.0\nGenerator: install.py\nRoot-Is-Purelib: true\nTag: py3-none-any\n", encoding="utf-8"
    )
    (info / "INSTALLER").write_text("install.py\n", encoding="utf-8")
    (info / "top_level.txt").write_text("tasker\n", encoding="utf-8")
    files = sorted(f for d in (target / "tasker", info) for f in d.rglob("*") if f.is_file())
    lines = [recorded(f, target) for f in files] + [f"{info.name}/RECORD,,"]
    (info / "RECORD").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"installed {name} {version} for Python {sys.version_info[0]}.{sys.version_info[1]} in {target.resolve()}")


if __name__ == "__main__":
    main()
