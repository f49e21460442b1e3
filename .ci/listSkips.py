# SPDX-License-Identifier: MIT
"""Lists the skipped tests of a JUnit report; fails on one whose reason is not allowed.

    python listSkips.py REPORT.xml ALLOWED

ALLOWED holds a regular expression a line; lines that begin with '#' are comments.
"""

import re
import sys
import xml.etree.ElementTree


def main(report, allowed):
    """Print every skip with its reason.

    Returns:
        1 where one of them is not allowed, else 0.
    """
    with open(allowed, encoding="utf-8") as stream:
        lines = [line.strip() for line in stream]
    patterns = [re.compile(line) for line in lines if line and not line.startswith("#")]
    status = 0
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        for skip in case.iter("skipped"):
            reason = skip.get("message") or ""
            known = any(pattern.fullmatch(reason) for pattern in patterns)
            status = status if known else 1
            name = "%s::%s" % (case.get("classname"), case.get("name"))
            print("%s: %s: %s" % ("skipped" if known else "NOT ALLOWED", name, reason))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
