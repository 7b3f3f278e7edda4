r"""Text from files in the languages that edgebuild writes: one function for each language.

Names in models, register descriptions, sources and targets, and the names of files, are whatever somebody wrote there.
Each function admits a list of characters; all others are replaced or escaped. What it returns is only right where its
docstring says. JSON needs no function of ours: `json.dumps` escapes all that is not ASCII.
"""

from __future__ import annotations

import re
import string
import unicodedata
from functools import cache
from zlib import crc32

PLAIN = frozenset(string.ascii_letters + string.digits + " !\"#$%&'()+,-./:;<=>@[]^_`{|}~")  # without * ? and \
WORD = frozenset(string.ascii_letters + string.digits + "_")
SHOWN = ("L", "M", "N", "P", "S")  # Unicode's categories: letters, marks, numbers, punctuation, symbols
LONGEST, LONGEST_WORD = 1000, 120  # characters in a comment, and of an identifier


@cache
def is_letter(c: str) -> bool:
    """Whether a character is a letter or a digit that is written left to right.

    Unicode 3.2 decides, which every Python has, so that products do not depend on Python's version.
    """
    known = unicodedata.ucd_3_2_0
    return known.category(c)[0] in "LN" and known.bidirectional(c) in ("L", "EN")


def visible(text: str) -> str:
    r"""The text with every character that would steer a terminal or a reader's eye as `\u202e`; tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _is_shown(c) else f"\\u{ord(c):04x}" for c in text)


def _is_shown(c: str) -> bool:
    kind = unicodedata.category(c)
    return kind[0] in SHOWN or kind in ("Zs", "Co", "Cn") or c == "\t"


def terminal(text: str) -> str:
    """Lines for a terminal."""
    return "\n".join(map(visible, text.split("\n")))


def comment(text: str) -> str:
    r"""Text inside of a comment of C, C++, assembler, a linker script or SystemRDL: no line ends, no comment begins.

    Without a backslash no line goes on in the next, and without `?` there are no trigraphs. `*` is admitted between
    blanks, as a sign of arithmetic.
    """
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    if PLAIN.issuperset(text):
        return text
    padded = f"_{text}_"
    return "".join(c if c in PLAIN or is_letter(c) or padded[i : i + 3] == " * " else "_" for i, c in enumerate(text))


def quoted(text: str) -> str:
    r"""A string literal of C, C++ or `#line`, with its quotes. Bytes beyond ASCII are escaped, `\303\251`."""
    return f'"{"".join(_in_string(c) for c in text)}"'


def _in_string(c: str) -> str:
    if (c in PLAIN and c != '"') or c == "*":
        return c
    if c in '"\\?':
        return f"\\{c}"
    return "".join(f"\\{byte:03o}" for byte in c.encode(errors="surrogateescape" if c >= "\udc80" else "strict"))


def identifier(text: str) -> str:
    """The nearest C identifier, for use behind a prefix or in front of more; a long one ends in a checksum."""
    word = "_".join("".join(c if c in WORD else " " for c in text).replace("_", " ").split()) or "tensor"
    return word if len(word) <= LONGEST_WORD else f"{word[: LONGEST_WORD - 9]}_{crc32(word.encode()):08x}"


def part(text: str) -> str:
    """A part of a C identifier, behind its first letter. Texts that differ give parts that differ, but for a few."""
    return "".join(c if c in WORD else f"x{ord(c):x}_" for c in text)


def xml(text: str) -> str:
    """Character data or a quoted attribute of XML, such as SVG and CMSIS-SVD."""
    text = visible(text).replace("\t", " ")
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&#34;"), ("'", "&#39;")):
        text = text.replace(sign, name)
    return "".join(c if is_xml(c) else "_" for c in text)


def is_xml(c: str) -> bool:
    """Whether XML 1.0 admits the character, and no other meaning is behind it: U+FFFE and U+FFFF are none."""
    return " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c >= "\U00010000"


def rdl_name(text: str) -> str:
    """An identifier of SystemRDL; words of the language are escaped."""
    word = part(text) or "_"
    word = f"_{word}" if word[0].isdigit() else word
    return f"\\{word}" if word in RDL_KEYWORDS else word


RDL_KEYWORDS = frozenset(
    """abstract accesstype addressingtype addrmap alias all alternate bit boolean bothedge byte compact component
    componentwidth constraint default encode enum external false field fullalign hw inside int internal level longint
    mem na negedge nonsticky number onreadtype onwritetype posedge precedencetype property r rclr real ref reg regalign
    regfile rset ruser rw rw1 shortint shortreal signal signed string struct sw this true type unsigned w w1 wclr with
    within woclr woset wot wr wset wuser wzc wzs wzt""".split()  # noqa: SIM905
)


def yaml_key(text: str) -> str:
    """A key of a YAML map: as it is if it is a plain word with dots, else in quotes."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+", text):
        return text
    return f'"{"".join(_in_yaml(c) for c in text)}"'


def _in_yaml(c: str) -> str:
    if (c in PLAIN and c != '"') or c in "*?":
        return c
    return f"\\{c}" if c in '"\\' else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"


def file_part(text: str) -> str:
    """A part of a file's name that compilers, linkers and build systems take on a command line without quotes."""
    return "".join(c if c in WORD or c in ".-" else "_" for c in text)
