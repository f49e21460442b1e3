# SPDX-License-Identifier: MIT
"""Packaging of tensile-parallel.

`Tensile` belongs to the host, so nothing is installed under that name: a `Tensile` in
site-packages, be it an empty folder, breaks the scripts in bin/ of every tree, which look for
their tree only where `import Tensile` finds nothing at all. What is installed lies in FILES;
TensileParallelCommands.py, beside it, knows how to get there.

`python setup.py overlay` is tools/overlay.py, which needs no setuptools.
"""

import os
import re
import runpy
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
if sys.argv[1:2] == ["overlay"]:
    sys.argv[:2] = ["setup.py overlay"]
    runpy.run_path(os.path.join(HERE, "tools", "overlay.py"), run_name="__main__")

from setuptools import setup  # noqa: E402
from setuptools.command.build_py import build_py  # noqa: E402

# The folder in site-packages that holds a folder Tensile like the one here.
FILES = "TensileParallelFiles"

# What else goes to site-packages. Every Python of an environment executes the first when it starts;
# the second makes the folder one that pip removes as a whole.
MADE = {
    "tensile-parallel.pth": "import TensileParallelCommands; TensileParallelCommands.helpImport()",
    FILES + "/README": "What TensileParallelCommands.py, beside this, puts on Python's path.",
}


def read(*parts):
    """Text of a file of this checkout."""
    with open(os.path.join(HERE, *parts), encoding="utf-8") as stream:
        return stream.read()


def version():
    """The version that the package itself states; it is not imported for that."""
    text = read("Tensile", "Parallel", "__init__.py")
    return re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE).group(1)


def requirements(name):
    """The lines of requirements/NAME.txt."""
    return read("requirements", name + ".txt").split()


def filesBelow(folder):
    """Every file below a folder, relative to it, as package data."""
    found = []
    for place, folders, files in os.walk(os.path.join(HERE, folder)):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        found += [os.path.relpath(os.path.join(place, name), folder) for name in sorted(files)]
    return [name for name in found if not name.endswith(".pyc")]


class BuildWithMadeFiles(build_py):
    """Adds the files for which setuptools has no word."""

    def run(self):
        super().run()
        if not getattr(self, "editable_mode", False):
            for path, text in zip(self._made(), MADE.values()):
                self.mkpath(os.path.dirname(path))
                with open(path, "w", encoding="utf-8") as stream:
                    stream.write(text + "\n")

    def get_outputs(self, include_bytecode=1):
        return [*super().get_outputs(include_bytecode), *self._made()]

    def _made(self):
        return [os.path.join(self.build_lib, name) for name in MADE]


os.chdir(HERE)
setup(
    name="tensile-parallel",
    version=version(),
    description="Tensile run once, with a client that uses every GPU",
    long_description=read("README.md"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.9",
    install_requires=requirements("run"),
    extras_require={
        "progress": ["rich"],
        "cluster": ["distributed", "dask-jobqueue>=0.8"],
        "report": ["matplotlib"],
        "test": requirements("test"),
        "lint": requirements("lint"),
        "docs": requirements("docs"),
    },
    cmdclass={"build_py": BuildWithMadeFiles},
    py_modules=["TensileParallelCommands"],
    package_dir={FILES + ".Tensile": "Tensile"},
    packages=[
        FILES + ".Tensile.Parallel",
        FILES + ".Tensile.Parallel.Alone.Tensile",
        # Data alone: the scripts, which the launcher of a run names; and what a rehearsal with
        # emulated devices needs where there is no Tensile.
        FILES + ".Tensile.bin",
        FILES + ".Tensile.Tests.parallel.configs",
        FILES + ".Tensile.Tests.parallel.host",
    ],
    package_data={
        FILES
        + ".Tensile.bin": ["TensileParallel", "TensileParallelClient", "TensileEmulatedClient"],
        FILES + ".Tensile.Tests.parallel.configs": filesBelow("Tensile/Tests/parallel/configs"),
        FILES + ".Tensile.Tests.parallel.host": filesBelow("Tensile/Tests/parallel/host"),
    },
    include_package_data=False,
    zip_safe=False,
    entry_points={
        "console_scripts": [
            "TensileParallel = TensileParallelCommands:runTensileParallel",
            "TensileParallelClient = TensileParallelCommands:runTensileParallelClient",
            "TensileEmulatedClient = TensileParallelCommands:runTensileEmulatedClient",
        ]
    },
    classifiers=[
        "Environment :: Console",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.9",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering",
    ],
)
