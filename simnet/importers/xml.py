"""XML from anywhere, read without its entities and without the network."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, ParseError

from simnet.errors import InvalidInput

_NOISE = re.compile(r"<!--.*?-->|<\?.*?\?>", re.DOTALL)


def first_element(text: str) -> str:
    """Tag of the first element, or nothing where the text does not begin as XML does."""
    head = _NOISE.sub("", text[:100_000].lstrip("\ufeff \t\r\n")).lstrip()
    match = re.search(r"<([A-Za-z]\w*)", head) if head.startswith("<") else None
    return match[1] if match else ""


def parse_xml(text: str, name: str) -> Element:
    """Root of the document.

    Raises
    ------
    InvalidInput : not well-formed, or with entities of its own (an entity bomb).
    """
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        root: Element = fromstring(text.encode("utf-8", "replace"), forbid_entities=True, forbid_external=True)
    except ParseError as error:
        raise InvalidInput(f"{name} is not well-formed XML ({error}); it may have been cut or mixed up") from error
    except DefusedXmlException as error:
        what = getattr(error, "name", None) or getattr(error, "sysid", None) or "one"
        raise InvalidInput(
            f"{name} defines entities ({what}), which are never read; write what they stand for in their place"
        ) from error
    except (LookupError, ValueError) as error:
        raise InvalidInput(f"{name} is XML in an encoding that cannot be read: {error}") from error
    return root
