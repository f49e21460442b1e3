# SPDX-License-Identifier: MIT
"""The words of a command line that stands in front of another program's.

An option is ours, theirs (the host's or the client's) or unknown to both. What is ours is said by
the caller: nothing here knows our options.

To tell CONFIG and OUT from the values of the host's own options, the number of values that each
of those takes has to be known. They are listed in HOST_OPTIONS, read from the argument parsers of
TensileLite 2024, early 2025 and 2026 and of classic 4.44. An option that is not listed (of a newer
host) takes the word after it as its value if two positional arguments are left without that word;
write `--option=value` to be sure.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

# How many values each option of the hosts' `Tensile` command takes; MANY: one or more.
MANY = -1
HOST_OPTIONS: Dict[str, int] = {
    "--alternate-format": 0,
    "--arch": 1,
    "--asm-cache": 1,
    "--assembler": 1,
    "--build-only": 0,
    "--c-compiler": 1,
    "--client-build-path": 1,
    "--client-lock": 1,
    "--client-path": 1,
    "--code-object-version": 1,
    "--cpu-only": 0,
    "--cxx-compiler": 1,
    "--debug": 0,
    "--device": 1,
    "--device-enumerator": 1,
    "--global-parameters": MANY,
    "--gpu-targets": 1,
    "--library-format": 1,
    "--logic-format": 1,
    "--mx-scale-format": 1,
    "--no-cache": 0,
    "--no-merge-files": 0,
    "--offload-bundler": 1,
    "--platform": 1,
    "--prebuilt-client": 1,
    "--restore-from-log": 1,
    "--rocm-agent-enumerator": 1,
    "--runtime-language": 1,
    "--short-names": 0,
    "--solution-pool": 1,
    "--use-cache": 0,
    "--validate-metadata": 0,
    "--verbose": 0,
    "-d": 1,
    "-p": 1,
    "-v": 0,
}

# Values that begin with a dash: -1, -0.5, and the client's lists of strides such as -1,-1,64.
_NEGATIVE_NUMBER = re.compile(r"^-\d*\.?\d+(,-?\d+)*$")

# An option as a program's source names it.
_IN_SOURCE = re.compile(r"""["'](--?[A-Za-z][\w-]*)["']""")

# How alike two names must be (difflib's ratio) for one to be taken for a slip of the other.
_ALIKE = 0.75


@dataclass(frozen=True)
class Word:
    """One option with its values, or one positional argument (option is then empty).

    `tokens` are the words of the command line that it was made of.
    """

    option: str
    values: Tuple[str, ...]
    tokens: Tuple[str, ...]
    ours: bool = False
    unknown: bool = False


def splitWords(
    argv: Sequence[str],
    ours: Dict[str, int],
    theirs: Dict[str, int],
    unknownArity: Optional[int] = None,
) -> List[Word]:
    """Cut a command line into options with their values, and positional arguments.

    An option that nobody knows is marked and takes no value here unless `unknownArity` says so;
    see settlePositionals.
    """
    words: List[Word] = []
    index = 0
    while index < len(argv):
        token = argv[index]
        if token == "--":
            words.append(Word("--", (), ("--",)))
            words.extend(Word("", (rest,), (rest,)) for rest in argv[index + 1 :])
            break
        if not isOption(token):
            words.append(Word("", (token,), (token,)))
            index += 1
            continue
        name, attached, text = splitOption(token, ours, theirs)
        known = ours.get(name, theirs.get(name))
        arity = known if known is not None else unknownArity or 0
        end = index + 1
        if not attached:
            while end < len(argv) and not isOption(argv[end]):
                if arity != MANY and end - index > arity:
                    break
                end += 1
        values = (text,) if attached else tuple(argv[index + 1 : end])
        tokens = tuple(argv[index:end])
        words.append(Word(name, values, tokens, name in ours, known is None))
        index = end
    return words


def isOption(token: str) -> bool:
    """Whether a word is an option, as argparse tells them apart (-1 is a value)."""
    if len(token) < 2 or token[0] != "-" or _NEGATIVE_NUMBER.match(token):
        return False
    return " " not in token.split("=", 1)[0]


def splitOption(token: str, ours: Dict[str, int], theirs: Dict[str, int]) -> Tuple[str, bool, str]:
    """(name, whether a value is attached, that value) of an option's word.

    Abbreviations of the host's names and values attached to its short options (-d1) are resolved
    as its argparse does.
    """
    if token.startswith("--"):
        name, equals, value = token.partition("=")
        if name not in theirs:
            fitting = [option for option in theirs if option.startswith(name)]
            # Ours are exact, and the host's own parser reports what is ambiguous.
            if len(fitting) == 1 and name not in ours:
                name = fitting[0]
        return name, bool(equals), value
    if token[:2] in theirs and len(token) > 2:
        return token[:2], True, token[2:].lstrip("=")
    return token, False, ""


def settlePositionals(words: List[Word]) -> List[Word]:
    """Give unknown options the word after them, unless CONFIG or OUT would then be missing."""
    settled: List[Word] = []
    spare = sum(1 for word in words if not word.option) - 2
    for word in words:
        before = settled[-1] if settled else None
        takes = before is not None and before.unknown and len(before.tokens) == 1
        if takes and not word.option and spare > 0 and "=" not in before.tokens[0]:
            settled[-1] = replace(before, values=word.values, tokens=before.tokens + word.tokens)
            spare -= 1
        else:
            settled.append(word)
    return settled


def joinWords(words: Iterable[Word]) -> Tuple[str, ...]:
    """The words of the command line that these were made of."""
    return tuple(token for word in words for token in word.tokens)


def serialArguments(words: Sequence[Word]) -> Tuple[str, ...]:
    """The user's command line without our options.

    Where one of ours stood between an option that takes many values and a positional argument,
    leaving it out would join the two; then the positional arguments go first.
    """
    rest = [word for word in words if not word.ours]
    for before, after in zip(rest, rest[1:]):
        if HOST_OPTIONS.get(before.option) == MANY and not after.option:
            options = [word for word in rest if word.option and word.option != "--"]
            return joinWords([word for word in rest if not word.option] + options)
    return joinWords(rest)


def lastValue(words: Sequence[Word], option: str) -> Optional[str]:
    """The value that is given last to an option; None where none is."""
    values = [word.values[-1] for word in words if word.option == option and word.values]
    return values[-1] if values else None


def globalParametersOption(
    hostOptions: Sequence[str], additions: Dict[str, str]
) -> Tuple[str, ...]:
    """The host's options with further global parameters, which beat the user's.

    The host keeps only the last --global-parameters (the 2026 one keeps all), so the additions
    have to go into that one; within it, the last of a name counts.

    Args:
        hostOptions: the host's options, without positional arguments.
        additions: name to Python literal, as text.
    """
    if not additions:
        return tuple(hostOptions)
    new = tuple("%s=%s" % item for item in additions.items())
    words = splitWords(hostOptions, {}, HOST_OPTIONS)
    given = [i for i, word in enumerate(words) if word.option == "--global-parameters"]
    if not given:
        return tuple(hostOptions) + ("--global-parameters",) + new
    last = words[given[-1]]
    words[given[-1]] = replace(last, tokens=("--global-parameters",) + last.values + new)
    return joinWords(words)


def hostOptionValue(hostOptions: Sequence[str], names: Sequence[str]) -> Optional[str]:
    """The last value that the host's options give to one of the names; None where none does.

    An abbreviation that is one in some hosts only counts as well.
    """
    words = splitWords(hostOptions, {}, HOST_OPTIONS, unknownArity=1)

    def isMeant(option: str) -> bool:
        return option in names or any(
            len(option) > 4 and option not in HOST_OPTIONS and name.startswith(option)
            for name in names
        )

    values = [word.values[-1] for word in words if word.values and isMeant(word.option)]
    return values[-1] if values else None


def givesHostOption(hostOptions: Sequence[str], name: str) -> bool:
    """Whether the host's options hold this one, abbreviated or not."""
    return any(word.option == name for word in splitWords(hostOptions, {}, HOST_OPTIONS))


def unknownOptions(words: Iterable[Word]) -> Tuple[str, ...]:
    """Options that nobody knows, as they were written and without attached values.

    A long option with one dash (-devices) is among them, though `-d evices` could be meant.
    """
    unknown = []
    for word in words:
        name = word.tokens[0].partition("=")[0] if word.option else ""
        if word.unknown or (len(name) > 3 and name[1] != "-" and name[1:].isalpha()):
            unknown.append(name)
    return tuple(unknown)


def meantOptions(name: str, ours: Iterable[str]) -> Tuple[str, ...]:
    """Those of our options that a word may have been meant to be; none where none is near.

    Args:
        name: an option, without an attached value.
        ours: our options.
    """
    plain = name.lstrip("-").replace("_", "-").lower()
    long = {option[2:]: option for option in ours if option.startswith("--")}
    if plain in long:
        return (long[plain],)
    if not name.startswith("--"):
        return ()
    abbreviated = tuple(option for text, option in long.items() if text.startswith(plain))
    near = difflib.get_close_matches(plain, long, 1, _ALIKE)
    return abbreviated or tuple(long[text] for text in near)


def isNamedIn(source: str, name: str) -> bool:
    """Whether a program whose parser is argparse takes an option, by its source.

    It does where the name, or one option alone that begins with it, is there in quotes.
    """
    known = set(_IN_SOURCE.findall(source))
    return name in known or sum(option.startswith(name) for option in known) == 1
