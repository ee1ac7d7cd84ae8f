"""What launchers, loggers and humans put before every line of a log, taken off again.

mpirun and srun name the rank, containers and syslog the time, pdsh the host, grep the file and the line, mail a quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from textwrap import dedent

from simnet.importers.lines import plain_numbers
from simnet.importers.record import Line

_DAY = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_PREFIX = re.compile(
    rf"""
    \ufeff
    | \s*\S*\[[^\]\s]*?\d+,\d+\]<std(?:out|err)>:[ ]?          # [1,0]<stdout>: of mpirun and prterun
    | \[?{_DAY}[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?\]?[ ]         # 2024-05-01 12:00:03, bracketed or not
    | \[?{_CLOCK}\]?[ ]                                        # 12:00:03
    | (?:[A-Z][a-z]{{2}}[ ])?[A-Z][a-z]{{2}}[ ]+\d{{1,2}}[ ]{_CLOCK}[ ](?:\d{{4}}[ ]?)?  # May  1 12:00:03 of syslog
    | [\w.-]+[ ][\w./-]+\[\d+\]:[ ]                            # node01 slurm[1234]: of syslog
    | \d{{9,10}}\.\d+[ ]                                       # seconds since 1970
    | std(?:out|err)[ ][FP][ ]                                 # of a container runtime
    | \[(?:pod/)?[\w./@:-]+\][ ]                               # [pod/launcher/main], [0]
    | \s*\d{{1,6}}:[ ]?(?=\D|\d+\s)                            # 0: of srun -l, 12: of grep -n
    | (?:DEBUG|INFO|WARNING):[\w.]*:[ ]?                       # of Python's logging
    | [A-Za-z][\w./-]*:(?:\d+:)?[ ]?+(?=[\s#\d]|$)                # node01: of pdsh, run.log:12: of grep
    | [>|+][ ]?+(?=[\s#\d]|$)                                     # a quote, a table, a patch
    """,
    re.VERBOSE,
)
_PLAIN = re.compile(r"\s*(?:#|\d+\s+\S|$)")
_NUMBERED = re.compile(r"\s*(\d{1,7})(:|\t)")
_SAME = re.compile(r"(?:[A-Za-z][\w./-]*:|[>|+])(?:[ ]|(?=$))")
_MOST = 4
_PEEKED = 200
_NEARLY_ALL = 0.9


def without_numbers(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines without the numbers of lines that `grep -n` and `cat -n` put before them; ranks are none."""
    rest = iter(lines)
    first = list(islice(rest, _PEEKED))
    if not _are_numbers(first):
        yield from chain(first, rest)
        return
    for line in chain(first, rest):
        yield Line(line.number, _NUMBERED.sub("", line.text, count=1), line.ended)


def _are_numbers(lines: Sequence[Line]) -> bool:
    """Whether numbers stand before most of the lines and rise; those before a tab by one."""
    found = [(int(match[1]), match[2]) for line in lines if (match := _NUMBERED.match(line.text))]
    rising = all(
        before[0] < after[0] and (after[1] == ":" or after[0] == before[0] + 1) for before, after in pairwise(found)
    )
    return rising and len(found) >= max(5, len(lines) // 2)


def without_prefixes(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines without what was put before them, and with numbers as the C locale writes them."""
    for line in without_numbers(lines):
        yield Line(line.number, plain_numbers(_stripped(line.text)), line.ended)


def _stripped(text: str) -> str:
    """A line without its prefixes; the usual comments and rows of a table have none."""
    for _ in range(0 if _PLAIN.match(text) else _MOST):
        match = _PREFIX.match(text)
        if match is None:
            break
        text = text[match.end() :]
    return text


def without_common_prefix(text: str) -> str | None:
    """A text nearly all of whose lines have a prefix, without it, and not indented as a whole; None for others.

    The prefix is of the same kind on nearly all lines, layer by layer, or the very same ("node01: ").
    """
    unfenced = (line for line in text.splitlines() if not line.startswith("```"))
    lines = [line.text for line in without_numbers(Line(n, line) for n, line in enumerate(unfenced, 1))]
    for _ in range(_MOST):
        lines = _without_shared(lines)
        ends = [match.end() if (match := _PREFIX.match(line)) else 0 for line in lines]
        written = [end for end, line in zip(ends, lines, strict=True) if line.strip()]
        if sum(end > 0 for end in written) < _NEARLY_ALL * max(len(written), 1):
            break
        lines = [line[end:] for line, end in zip(lines, ends, strict=True)]
    found = dedent("\n".join(lines))
    return None if found.splitlines() == text.splitlines() else found


def _without_shared(lines: list[str]) -> list[str]:
    """Lines without a host or a quote that all of them begin with: that the first and the last in order begin with."""
    written = [line for line in lines if line.strip()]
    first, last = min(written, default=""), max(written, default="")
    match = _SAME.match(first)
    return [line[match.end() :] for line in lines] if match and last.startswith(match[0]) else lines
