# SPDX-License-Identifier: MIT
"""Packaging of tensile-parallel.

`Tensile` belongs to the host, so there is no Tensile/__init__.py here: what is installed joins an
installed Tensile, or makes a namespace package where there is none.
"""

import os
import re

from setuptools import setup

HERE = os.path.dirname(os.path.abspath(__file__))


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
        "cluster": ["distributed"],
        "report": ["matplotlib"],
        "test": requirements("test"),
        "lint": requirements("lint"),
    },
    py_modules=["TensileParallelCommands"],
    packages=[
        "Tensile.Parallel",
        "Tensile.Parallel.Alone.Tensile",
        # Data alone: the scripts, which the launcher of a run names; and what a rehearsal with
        # emulated devices needs where there is no Tensile.
        "Tensile.bin",
        "Tensile.Tests.parallel.configs",
        "Tensile.Tests.parallel.host",
    ],
    package_data={
        "Tensile.bin": ["TensileParallel", "TensileParallelClient", "TensileEmulatedClient"],
        "Tensile.Tests.parallel.configs": filesBelow("Tensile/Tests/parallel/configs"),
        "Tensile.Tests.parallel.host": filesBelow("Tensile/Tests/parallel/host"),
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
        "Topic :: Scientific/Engineering",
    ],
)
