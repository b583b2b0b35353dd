"""Writes requirements.txt and constraints.txt into the present folder, from the pyproject.toml that is named."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
for name, lines in {
    "requirements.txt": project["project"]["dependencies"],
    "constraints.txt": project["tool"]["uv"]["constraint-dependencies"],
}.items():
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
