# SPDX-License-Identifier: MIT
"""The element types of tensors: their letters in names, their words in the client's INI."""

from __future__ import annotations

from functools import total_ordering

from .Generation import dataTypeLetters

# letter in problem type names -> (long name in configs, word of the client)
_words = {
    "S": ("single", "Float"),
    "D": ("double", "Double"),
    "C": ("complexSingle", "ComplexFloat"),
    "Z": ("complexDouble", "ComplexDouble"),
    "H": ("half", "Half"),
    "4xi8": ("int8x4", "Int8x4"),
    "I": ("int32", "Int32"),
    "B": ("bfloat16", "BFloat16"),
    "I8": ("int8", "Int8"),
    "I64": ("int64", "Int64"),
    "X": ("xfloat32", "XFloat32"),
    "F8": ("float8", "Float8"),
    "B8": ("bfloat8", "BFloat8"),
    "F8B8": ("float8Bfloat8", "Float8BFloat8"),
    "B8F8": ("bfloat8Float8", "BFloat8Float8"),
}


@total_ordering
class DataType:
    """One element type, from a number, a letter, a long name or the client's word."""

    def __init__(self, value):
        if isinstance(value, DataType):
            self.letter = value.letter
        elif isinstance(value, int):
            self.letter = dataTypeLetters[value]
        else:
            self.letter = self._lookUp(str(value).lower())

    @staticmethod
    def _lookUp(text: str) -> str:
        for letter in dataTypeLetters:
            if text in (letter.lower(), *(word.lower() for word in _words[letter])):
                return letter
        raise KeyError(text)

    @property
    def value(self) -> int:
        """Its number in YAML files."""
        return dataTypeLetters.index(self.letter)

    @property
    def word(self) -> str:
        """Its name in the client's INI."""
        return _words[self.letter][1]

    def __eq__(self, other):
        return isinstance(other, DataType) and self.letter == other.letter

    def __lt__(self, other):
        return self.value < other.value

    def __hash__(self):
        return hash(self.letter)

    def __str__(self):
        return self.letter
