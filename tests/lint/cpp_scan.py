"""Reads C++ just well enough for the house's size rules: blanks what is not code, finds function bodies by their braces."""

import re

_BLANK = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_SCOPE = re.compile(r"(?:^|[\s;{}])(?:namespace|class|struct|union|enum|extern|export)\b")
_FUNCTION_END = re.compile(r"\)[\s&]*(?:(?:const|noexcept|override|final|mutable|try)\b[\s&]*)*(?:->[^;{}()=]+)?$")


def blank(text):
    """The text with comments, literals and preprocessor lines turned to spaces; line numbers stay."""

    def spaces(match):
        found = match.group(0)
        if found.startswith(("//", "/*")):
            return re.sub(r"[^\n]", " ", found)
        # A literal stays one token, so that `= "x" {` still reads as an expression.
        return '"' + re.sub(r"[^\n]", " ", found[1:-1]) + '"'

    # A digit separator would read as the start of a character.
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "_", text)
    return _DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), _BLANK.sub(spaces, text))


def functions(text):
    """[(first line, lines, name)] of every outermost function body; lambdas count with what holds them."""
    code = blank(text)
    found, stack, start, parens = [], [], 0, 0
    for at, char in enumerate(code):
        if char == "(":
            parens += 1
        elif char == ")":
            parens -= 1
        elif char == ";" and parens <= 0:
            start = at + 1
        elif char == "{":
            head = code[start:at].strip()
            inside = any(kind == "function" for kind, _, _ in stack)
            kind = "block" if inside else _kind(head)
            first = start + len(code[start:at]) - len(code[start:at].lstrip())
            stack.append((kind, code.count("\n", 0, first) + 1, _name(head)))
            if kind != "init":
                start = at + 1
        elif char == "}" and stack:
            kind, line, name = stack.pop()
            if kind == "function":
                found.append((line, code.count("\n", 0, at) + 2 - line, name))
            if kind != "init":
                start, parens = at + 1, 0 if not stack else parens
    return found


def _kind(head):
    without_access = re.sub(r"\b(?:public|private|protected)\s*:", "", head).strip()
    if _SCOPE.search(without_access) and not without_access.endswith(")"):
        return "scope"
    if not without_access or without_access.endswith(("=", ",", "(", "return", "[", "<")):
        return "init"
    return "function" if _FUNCTION_END.search(without_access) else "init"


def _name(head):
    match = re.search(r"([\w:~]+(?:\s*operator\S*)?)\s*\(", head)
    return match.group(1) if match else "?"
