"""The base of the image where none can be pulled: Debian, and its own Python, from its packages.

What the machine trusts (certificates of a proxy, settings of pip) is in it, so that a build goes the way that the
machine goes.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

DEBIAN: Final = "debian:bookworm-slim"
_MANUALS: Final = 'for i in 1 2 3 4 5 6 7 8; do mkdir -p "$1/usr/share/man/man$i"; done'
"""Without these folders the package of Java cannot be installed; the official slim images have them."""
_CERTIFICATES: Final = (
    'mkdir -p "$1/usr/local/share/ca-certificates"; cp /usr/local/share/ca-certificates/*.crt'
    ' "$1/usr/local/share/ca-certificates/" 2>/dev/null || true; chroot "$1" update-ca-certificates'
)
_PIP: Final = 'printf "[global]\\ncert = /etc/ssl/certs/ca-certificates.crt\\n" > "$1/etc/pip.conf"'
_CLEAN: Final = (
    'printf \'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };\\n'
    'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";\\n\''
    ' > "$1/etc/apt/apt.conf.d/docker-clean"; rm -f "$1"/var/cache/apt/*.bin'
)
"""As in the official images, so that apt leaves no archives and indexes in a layer (80 MB in each)."""
_PYTHON: Final = f"""FROM {DEBIAN}
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_BREAK_SYSTEM_PACKAGES=1
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-pip python3-venv \\
 && rm -rf /var/lib/apt/lists/* && ln -s python3 /usr/bin/python
"""


def have_base(name: str) -> str:
    """Sees to it that the engine has the base image `name`; returns why it cannot be had, "" when it is there."""
    if _ran(["docker", "image", "inspect", name]).returncode == 0:
        return ""
    pulled = _ran(["docker", "pull", name])
    if pulled.returncode == 0:
        return ""
    if shutil.which("mmdebstrap") is None:
        return f"{pulled.stderr.strip()[-200:]}; and there is no mmdebstrap to make it"
    hooks = [f"--customize-hook={hook}" for hook in (_MANUALS, _CERTIFICATES, _PIP, _CLEAN)]
    made = ["mmdebstrap", "--variant=minbase", "--include=ca-certificates,procps", *hooks, "bookworm", "-"]
    with subprocess.Popen(made, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packing:
        imported = subprocess.run(
            ["docker", "import", "-", DEBIAN], stdin=packing.stdout, capture_output=True, check=False
        )
    built = _ran(["docker", "build", "--tag", name, "-"], _PYTHON)
    if packing.returncode or imported.returncode or built.returncode:
        return f"it cannot be made of Debian's packages: {built.stderr.strip()[-300:]}"
    return ""


def _ran(command: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
