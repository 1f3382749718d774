"""Builds a component from a Python module in `src`, in the guest's folder.

    python3 build.py MODULE COMPONENT

The tools, and packages that the guest uses, come from its requirements.txt, by pip and with their
hashes, into `.build/venv`: again only when that file has changed. Without arguments nothing but
that is done.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = Path(".build/venv")
# In a checkout of mortise the contract is that of the host; a guest of its own has a copy.
CONTRACT = next(path for path in (HERE / "wit", HERE.parent.parent / "wit") if path.is_dir())
PROGRAMS = TOOLS / ("Scripts" if os.name == "nt" else "bin")


def build(module: str, component: str) -> None:
    made = Path(component)
    made.parent.mkdir(parents=True, exist_ok=True)
    draft = made.with_suffix(".draft")
    paths = ["-p", str(copied(Path("src"))), "-p", str(copied(HERE / "mortise_sdk", "mortise_sdk"))]
    run(
        PROGRAMS / "componentize-py",
        *("--quiet", "-d", str(CONTRACT), "-w", "processor", "componentize", module),
        *(*paths, "-o", str(draft)),
    )
    # Whoever looks at the component never sees half of it.
    draft.replace(made)


def install(requirements: Path) -> None:
    stamp = TOOLS / "installed"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print(f"installing the tools of {requirements.resolve()}", file=sys.stderr)
    shutil.rmtree(TOOLS, ignore_errors=True)
    try:
        venv.create(TOOLS, with_pip=True)
    except subprocess.CalledProcessError:
        sys.exit(
            "Python cannot make an environment with pip: install its module venv (python3-venv)"
        )
    run(PROGRAMS / "pip", *("install", "--quiet", "--require-hashes", "-r", str(requirements)))
    stamp.write_text(wanted)


def copied(folder: Path, below: str = "") -> Path:
    """Copies a folder, and returns the copy's root: builds leave compiled files beside sources."""
    root = Path(".build/path") / folder.name
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(folder, root / below, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def run(program: Path, *arguments: str) -> None:
    # The packages of this guest, not those of the shell.
    environment = os.environ | {"VIRTUAL_ENV": str(TOOLS.resolve())}
    status = subprocess.run([program, *arguments], check=False, env=environment).returncode
    if status != 0:
        sys.exit(f"{program.name} failed")


if __name__ == "__main__":
    install(Path("requirements.txt"))
    if sys.argv[1:]:
        build(*sys.argv[1:])
