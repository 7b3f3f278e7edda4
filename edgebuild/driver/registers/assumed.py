"""Effects of fields that names, descriptions and kinds of access suggest, where a description states none.

A wrong guess that a field acts costs a line of an overlay. A wrong guess that it is a setting destroys flags. So what
may be a flag is one, and where nobody says which value does nothing there, `modify` stands for it: no write of a
neighbour is allowed. Where a file states effects (`modifiedWriteValues`), its silence means that there are none, and
only descriptions count.
"""

from __future__ import annotations

import re

from edgebuild.driver.registers.regmap import FieldInfo, RegisterInfo

ONE, ZERO = r"(?:a |an |with |it to |by )*\W?(?:1|one)\b\W?", r"(?:a |an |with |it to |by )*\W?(?:0|zero)\b\W?"
WRITE = r"\bwrit(?:e|es|ing|ten)\b:? *(?:as )?"
CLEAR, SET = r"(?:clear|reset)(?:s|ed|ing)?\b", r"sets?\b"
BY_WRITE = r"\b[^.;]{0,40}?(?:by|when|with|if|,) *(?:it is |software |\()* *"
STATED = (  # (a description that says it, what a write does)
    (rf"\brc_w1\b|\bw1c\b|\br/?wc1?\b|{WRITE}{ONE}[^.;,]{{0,30}}?{CLEAR}|{CLEAR}{BY_WRITE}{WRITE}{ONE}", "oneToClear"),
    (rf"\brc_w0\b|\bw0c\b|{WRITE}{ZERO}[^.;,]{{0,30}}?{CLEAR}|{CLEAR}{BY_WRITE}{WRITE}{ZERO}", "zeroToClear"),
    (rf"{WRITE}{ONE}[^.;,]{{0,20}}?toggle|toggled?{BY_WRITE}{WRITE}{ONE}", "oneToToggle"),
    (rf"\bw1s\b|{WRITE}{ONE}[^.;,]{{0,12}}?{SET}(?! to)", "oneToSet"),
)
THIS = r"(?: of)?(?: (?:this|it|the (?:register|bit|field))\b| *[.,;)(]| *$)"
STATED_READ = re.compile(
    rf"{CLEAR}[^.;]{{0,20}}(?:on|by|after|when) (?:a |it is |being )?read(?:ing)?{THIS}|read to clear"
)
CHANGING = re.compile(r"cleared (?:automatically )?by (?:the )?hardware|self[- ]clear|hardware (?:then )?clears")

SETTING = re.compile(r"enable|disable|mode\b|\bmask|select|polarity|prescal|threshold|level\b|priority|config")
SETTING_NAME = re.compile(r"(EN|IE|IM|MSK|MASK|MODE|SEL|CFG|DIS)\d*$|^(EN|IE|IM)_?[A-Z0-9]+$")
FLAG = re.compile(r"\b(?:flags?|pending|occurred|status bits?|correct transfer|transfer completed?|overrun|overflow)\b")
FLAG_NAME = re.compile(r"(IF|FLAG|FLG)\d*$|(?<=[A-Z])_F$")
STATUS = re.compile(r"(?:.*_)?(?:[A-Z]{0,4}SR|[A-Z]*STAT(?:US|R)?|[A-Z]*STS|[A-Z]*FLAGS?|IFR?|[FR]?PR|RIS|MIS)\d*")
STATUS_TEXT = re.compile(r"\b(?:status|pending|flags?) (?:flags? )?register")
CONTROL_TEXT = re.compile(r"control|config|prescaler|period|priority|enable|mask|mode|preload")
ACTS = re.compile(r"clear|reset|\bset\b|trigger|generat|start|stop|abort|flush|request|toggle|launch")
ACTING = re.compile(r".*(?:CLR|CLEAR|SET|EGR|ICR|FCR|BSRR|BRR|BSR|BCR|BOP|BC|TRIG|SWIER|SWEV|SWTRIG).*")
TOGGLE = re.compile(r"D?TOG|TGL")
DATA = re.compile(r"(?:.*_)?(?:U?ART)?(?:RX?|X|RXF|TRX)?(?:DR|DATA|DATAR|FIFO|RBR|RHR|BUF|BUFFER|RXD|RDR)\d*")


def assumed(register: RegisterInfo, info: FieldInfo, stated: bool) -> tuple[str, str]:
    """(what a write does in the words of SVD, "changes" where hardware does, "read" where a read does; why), or empty.

    `stated`: whether the file states effects of other fields.
    """
    said, name = " ".join(info.description.lower().split()), info.name.upper()
    if "r" in info.access and not info.read_action:
        if len(register.fields) > 1 and STATED_READ.search(said):
            return "read", "its description says that a read clears it"
        if not stated and len(register.fields) > 1 and info.width > 3 and DATA.fullmatch(register.name.upper()):
            return "read", "a read of data may take it out"
    if "w" not in info.access or info.modified:
        return "", ""
    for words, write in STATED:
        if re.search(words, said):
            return write, "its description says so"
    if CHANGING.search(said) and info.access == "rw":
        return "changes", "its description says that hardware clears it"
    return ("", "") if stated else _by_name(register, info, said, name)


def _by_name(register: RegisterInfo, info: FieldInfo, said: str, name: str) -> tuple[str, str]:
    """The assumption about a field whose description does not say what a write does."""
    text = register.description.lower()
    if info.access == "w":
        no_value = register.reset >> info.lsb & ((1 << info.width) - 1)
        acts = ACTS.search(said) or ACTING.fullmatch(register.name.upper())
        return (
            ("oneToSet", "it can only be written, and a 1 acts")
            if acts and info.width == 1 and not no_value
            else ("", "")
        )
    if re.match(r"clears? .*(?:flag|pending|status|error)", said) and info.width == 1:
        return "oneToClear", "its description begins with 'clear'"
    if SETTING.search(said) or SETTING_NAME.search(name):
        return "", ""
    if TOGGLE.match(name) or (re.search(r"\btoggles?\b", said) and info.width == 1):
        return "modify", "a write may toggle it"
    status = STATUS.fullmatch(register.name.upper()) or STATUS_TEXT.search(text)
    if (status and not CONTROL_TEXT.search(text)) or FLAG.search(said) or FLAG_NAME.search(name):
        return "modify", "it looks like a flag, and nothing says how it is cleared"
    return "", ""
